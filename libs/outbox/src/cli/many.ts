import type { ActionOptions, ManyOptions, ManyReport } from '../index.js';
import { wrongUsage } from './cli-error.js';
import { type ExitCode, exit } from './exit-codes.js';
import type { CommonOptions, ManyActionOptions } from './options.js';
import { Progress } from './progress.js';
import { reportText, type Verb } from './render/actions.js';
import type { Terminal } from './terminal.js';

/** One action on all that match. */
export interface ManyAction {
  readonly verb: Verb;
  /** `deliveries`. */
  readonly what: string;
  readonly options: CommonOptions & ManyActionOptions;
  readonly by: ActionOptions;
  readonly act: (options: ManyOptions) => Promise<ManyReport>;
}

/** Counts, asks, acts with progress, and says what came of it. Ctrl-C ends it between two chunks. */
export async function actOnMany(terminal: Terminal, action: ManyAction): Promise<ExitCode> {
  const { verb, what, options, by, act } = action;
  const bound = options.limit === undefined ? by : { ...by, limit: options.limit };
  const ask = !options.yes && !options.dryRun;
  if (ask && !terminal.interactive) throw unasked(verb.now, what);
  // Counted for the question and for the bar; a script with --yes wants neither.
  const count = options.dryRun || terminal.interactive ? await act({ ...bound, dryRun: true }) : undefined;
  if (count && (options.dryRun || count.done === 0)) return tell(terminal, action, count);
  if (ask && !(await terminal.ask(`${verb.now} ${count?.done.toLocaleString('en')} ${what}?`)))
    return declined(terminal);
  return tell(terminal, action, await run(act, bound, count?.matched));
}

async function run(act: ManyAction['act'], bound: ManyOptions, matched: number | undefined): Promise<ManyReport> {
  const stop = new AbortController();
  const abort = (): void => stop.abort();
  const progress = matched === undefined ? undefined : new Progress(matched);
  process.once('SIGINT', abort);
  try {
    return await act({ ...bound, signal: stop.signal, onRow: (_, counts) => progress?.update(counts) });
  } finally {
    process.off('SIGINT', abort);
    progress?.stop();
  }
}

function tell(terminal: Terminal, { verb, options }: ManyAction, report: ManyReport): ExitCode {
  if (options.json) terminal.json(report);
  else terminal.print(reportText(report, verb));
  return report.done > 0 && report.failed === 0 ? exit.done : exit.problem;
}

export function declined(terminal: Terminal): ExitCode {
  terminal.note('nothing was changed');
  return exit.problem;
}

export function unasked(verb: string, what: string): Error {
  return unaskable(`${verb} would change all ${what} that match`, 'look with --dry-run, then give --yes');
}

export function unaskable(would: string, remedy: string): Error {
  return wrongUsage(`${would}, and there is no terminal to ask on: ${remedy}`);
}
