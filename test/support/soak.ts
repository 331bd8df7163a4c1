import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { ended } from 'throwaway-nats';

export interface EndedSoak {
  readonly code: number | null;
  readonly out: string;
  readonly errors: string;
}

/** What it tells when all is well. */
export const nothingWrong = {
  ok: true,
  lost: 0,
  twice: 0,
  deadByMistake: 0,
  unkept: 0,
  torn: 0,
  unasked: 0,
  exits: 0,
  waiting: 0,
  jobsTogether: 0,
} as const;

export const nothingWrongWithTheOperator = {
  lost: 0,
  twice: 0,
  unclear: 0,
  unaudited: 0,
  ranPaused: 0,
  left: 0,
  surprises: 0,
} as const;

/** The built soak, in processes of its own. */
export class SoakBench {
  private running: ChildProcess | undefined;

  /** `meddle` is given the address of the soak's server, once everybody is at work. */
  async run(args: readonly string[], meddle?: (url: string) => Promise<void>): Promise<EndedSoak> {
    const child = spawn(process.execPath, [join(process.cwd(), 'dist/soak/main.js'), ...args], {
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    this.running = child;
    const out: string[] = [];
    const errors: string[] = [];
    child.stdout.on('data', (data) => out.push(String(data)));
    let meddling: Promise<void> | undefined;
    child.stderr.on('data', (data) => {
      errors.push(String(data));
      const url = /two publishers on (postgres:\S+)[ \n]/.exec(errors.join(''))?.[1];
      if (url) meddling ??= meddle?.(url);
    });
    const [code] = await once(child, 'close');
    await meddling;
    return { code, out: out.join(''), errors: errors.join('') };
  }

  /** A test that timed out must not leave its server and its fleet behind. */
  async stop(): Promise<void> {
    if (this.running) await ended(this.running, 'SIGTERM', 60_000);
  }
}
