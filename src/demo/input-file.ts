import { readFile } from 'node:fs/promises';
import type { INestApplicationContext } from '@nestjs/common';
import { EventPublisher } from 'nestjs-outbox';
import { DataSource } from 'typeorm';
import { DemoError, wordsOf } from './demo-error.js';
import { knownTypes, type PublishedEvent } from './tally.js';

export interface InputLine {
  readonly line: number;
  readonly type: string;
  readonly tenant: string;
  readonly payload: unknown;
}

/** Reads and checks the whole file before anything is started; empty lines are skipped. */
export async function readInput(path: string): Promise<InputLine[]> {
  const lines = (await contentOf(path)).split('\n');
  const events = lines.flatMap((text, i) => (text.trim() === '' ? [] : [readLine(path, text, i + 1)]));
  if (events.length === 0) throw new DemoError(`${path}: there is no event in the file`, 2);
  return events;
}

/** All of the file or nothing of it: one transaction. */
export async function publishInput(
  app: INestApplicationContext,
  path: string,
  lines: readonly InputLine[],
): Promise<PublishedEvent[]> {
  const publisher = app.get(EventPublisher);
  return app.get(DataSource).transaction(async () => {
    const published: PublishedEvent[] = [];
    for (const { line, type, tenant, payload } of lines) {
      try {
        const { id } = await publisher.publishFor(tenant, type, payload);
        published.push({ eventId: id, type });
      } catch (error) {
        throw new DemoError(`${path}, line ${line}: ${wordsOf(error)}`, 2, { cause: error });
      }
    }
    return published;
  });
}

async function contentOf(path: string): Promise<string> {
  try {
    return await readFile(path, 'utf8');
  } catch (error) {
    const missing = (error as NodeJS.ErrnoException).code === 'ENOENT';
    throw new DemoError(missing ? `there is no file ${path}` : `${path} cannot be read: ${wordsOf(error)}`, 2);
  }
}

function readLine(path: string, text: string, line: number): InputLine {
  const refuse = (problem: string): never => {
    throw new DemoError(`${path}, line ${line}: ${problem}`, 2);
  };
  const value = parse(text, refuse);
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return refuse('is no JSON object');
  const { type, tenant, payload } = value as Record<string, unknown>;
  if (typeof type !== 'string' || !knownTypes.includes(type))
    return refuse(`type is ${JSON.stringify(type)}; this app knows ${knownTypes.join(' and ')}`);
  if (typeof tenant !== 'string' || tenant === '') return refuse('tenant must be a string that is not empty');
  if (payload === undefined) return refuse('payload is missing');
  return { line, type, tenant, payload };
}

function parse(text: string, refuse: (problem: string) => never): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    return refuse(`is no JSON: ${wordsOf(error)}`);
  }
}
