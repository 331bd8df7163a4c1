import { fileURLToPath } from 'node:url';
import type { Method } from './instance-patches.js';

/** Where the application called something, and the method of a library that it called there. */
export interface CallSite {
  readonly file: string;
  readonly line: number;
  readonly column: number;
  /** Such as `Repository.save`. */
  readonly called: string | undefined;
}

/** TypeORM puts up to 15 frames of its own above the application's; Node keeps 10 unless told. */
const deepEnough = 40;

/**
 * The nearest frame of the application below `self` (the function that was called). Only good while the call is
 * synchronous: behind an `await` of TypeORM's, `return repo.save()` has left no frame. Which frame it is, the raw stack
 * tells: source maps move those of packages to places that no longer look like packages. Where it is, the text tells,
 * in which the application's own source maps count.
 */
export function callSite(self: Method): CallSite | undefined {
  const frames = framesBelow(self, deepEnough);
  const at = frames.findIndex(({ file }) => file !== undefined && !foreign.test(file));
  const frame = frames[at];
  if (!frame) return undefined;
  const place = placeOf(textBelow(self)[at]) ?? placeOf(`(${frame.file}:${frame.line}:${frame.column})`);
  return place && { ...place, called: frames[at - 1]?.name };
}

/** The function that called `self`, such as `EntityPersistExecutor.execute`. */
export function callerOf(self: Method): string {
  return framesBelow(self, 1)[0]?.name ?? '';
}

/** Files of packages, of Node and of the engine. */
const foreign = /[\\/]node_modules[\\/]|^node:|^<|^native/;

interface Frame {
  readonly name: string;
  readonly file: string | undefined;
  readonly line: number | null;
  readonly column: number | null;
}

function framesBelow(self: Method, limit: number): Frame[] {
  let frames: Frame[] = [];
  const { prepareStackTrace } = Error;
  Error.prepareStackTrace = (_, raw) => {
    frames = raw.map((frame) => ({
      name: `${frame.getTypeName()}.${frame.getMethodName() ?? frame.getFunctionName()}`,
      file: frame.getFileName() ?? undefined,
      line: frame.getLineNumber(),
      column: frame.getColumnNumber(),
    }));
    return '';
  };
  try {
    stackBelow(self, limit);
    return frames;
  } finally {
    Error.prepareStackTrace = prepareStackTrace;
  }
}

function textBelow(self: Method): string[] {
  const stack = stackBelow(self, deepEnough);
  return typeof stack === 'string' ? stack.split('\n').filter((line) => /^\s*at /.test(line)) : [];
}

function stackBelow(self: Method, limit: number): unknown {
  const { stackTraceLimit } = Error;
  Error.stackTraceLimit = limit;
  try {
    const holder: { stack?: unknown } = {};
    Error.captureStackTrace(holder, self);
    return holder.stack;
  } finally {
    Error.stackTraceLimit = stackTraceLimit;
  }
}

function placeOf(text: string | undefined): Omit<CallSite, 'called'> | undefined {
  const found = /(?:\(|at (?:async )?)((?:file:\/\/)?(?:\/|[A-Za-z]:[\\/]).*):(\d+):(\d+)\)?$/.exec(text ?? '');
  if (!found) return undefined;
  const [, at = '', line, column] = found;
  return { file: at.startsWith('file:') ? fileURLToPath(at) : at, line: Number(line), column: Number(column) };
}
