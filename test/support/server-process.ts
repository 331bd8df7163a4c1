import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { ended } from 'throwaway-nats';
import type { ServerOrder } from './server-main.js';

/** On a machine that does much besides. */
const answerMs = 90_000;

/** A Postgres server of a test's own (see server-main.ts), to be stopped and started under it. */
export class ServerProcess {
  private constructor(
    private readonly child: ChildProcess,
    /** A superuser's URL. */
    readonly url: string,
  ) {}

  static async start(): Promise<ServerProcess> {
    const child = fork(join(process.cwd(), 'dist/test/support/server-main.js'), [], { stdio: ['ignore', 2, 2, 'ipc'] });
    return new ServerProcess(child, String(await answer(child, 'start')));
  }

  /** Stops the server and keeps its data. */
  pause(): Promise<unknown> {
    return this.order('pause');
  }

  /** Starts it again, with the same data, on the same port. */
  resume(): Promise<unknown> {
    return this.order('resume');
  }

  /** Ends it as a crash would (an immediate shutdown): it recovers when it is started again. */
  crash(): Promise<unknown> {
    return this.order('crash');
  }

  /** Starts a standby of it, which stops it for a moment; the standby's URL. */
  async standby(): Promise<string> {
    return String(await this.order('standby'));
  }

  /** Resolves when the standby takes writes. */
  promote(): Promise<unknown> {
    return this.order('promote');
  }

  async stop(): Promise<void> {
    try {
      await this.order('stop');
      this.child.disconnect();
    } finally {
      await ended(this.child, 'SIGTERM');
    }
  }

  private order(order: ServerOrder): Promise<unknown> {
    this.child.send(order);
    return answer(this.child, order);
  }
}

/** What it says next; not without end, and not of a process that is gone. */
async function answer(child: ChildProcess, order: string): Promise<unknown> {
  const over = new AbortController();
  const { signal } = over;
  const late = setTimeout(() => over.abort(), answerMs);
  try {
    return await Promise.race([
      once(child, 'message', { signal }).then(([said]) => said),
      once(child, 'exit', { signal }).then(([code]) => Promise.reject(new Error(`its process exited with ${code}`))),
    ]);
  } catch (error) {
    throw new Error(`the server did not ${order} within ${answerMs} ms`, { cause: error });
  } finally {
    clearTimeout(late);
    over.abort();
  }
}
