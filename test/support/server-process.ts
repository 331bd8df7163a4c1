import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import type { ServerOrder } from './server-main.js';

/** A Postgres server of a test's own (see server-main.ts), to be stopped and started under it. */
export class ServerProcess {
  private constructor(
    private readonly child: ChildProcess,
    /** A superuser's URL. */
    readonly url: string,
  ) {}

  static async start(): Promise<ServerProcess> {
    const child = fork(join(process.cwd(), 'dist/test/support/server-main.js'), [], { stdio: ['ignore', 2, 2, 'ipc'] });
    const [url] = await Promise.race([
      once(child, 'message'),
      once(child, 'exit').then(([code]) => Promise.reject(new Error(`the server's process exited with ${code}`))),
    ]);
    return new ServerProcess(child, String(url));
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
    await this.order('stop');
    this.child.disconnect();
    await once(this.child, 'exit');
  }

  private async order(order: ServerOrder): Promise<unknown> {
    this.child.send(order);
    const [answer] = await once(this.child, 'message');
    return answer;
  }
}
