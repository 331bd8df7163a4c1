import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { Client } from 'pg';
import { eventually } from './eventually.js';

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
  pause(): Promise<void> {
    return this.order('pause');
  }

  /** Ends it as a crash would (an immediate shutdown): it recovers when it is started again. */
  async crash(): Promise<void> {
    const client = new Client({ connectionString: this.url });
    client.on('error', () => {});
    await client.connect();
    const { rows } = await client.query(`SELECT split_part(pg_read_file('postmaster.pid'), E'\\n', 1)::int AS pid`);
    process.kill(rows[0].pid, 'SIGQUIT');
    await eventually('the server is gone', () => {
      try {
        return !process.kill(rows[0].pid, 0);
      } catch {
        return true;
      }
    });
  }

  /** Starts it again, with the same data, on the same port. */
  resume(): Promise<void> {
    return this.order('resume');
  }

  async stop(): Promise<void> {
    await this.order('stop');
    this.child.disconnect();
    await once(this.child, 'exit');
  }

  private async order(order: 'pause' | 'resume' | 'stop'): Promise<void> {
    this.child.send(order);
    await once(this.child, 'message');
  }
}
