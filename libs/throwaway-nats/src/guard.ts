import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { Socket } from 'node:net';

/**
 * A process that waits for this one to end, however it does (a handler of 'exit' does not run after a signal), and
 * then ends the server whose id is in `pidFile` and removes the folder.
 */
export class Guard {
  private constructor(private readonly child: ChildProcess) {}

  static async start(folder: string, pidFile: string): Promise<Guard> {
    const script = 'cat; kill -KILL "$(cat "$2")"; rm -rf "$1" || { sleep 1; rm -rf "$1"; }';
    const child = spawn('sh', ['-c', script, 'nats-guard', folder, pidFile], {
      // Apart from the terminal's group, or Ctrl-C would end it first.
      detached: true,
      stdio: ['pipe', 'ignore', 'ignore'],
    });
    await once(child, 'spawn');
    child.unref();
    if (child.stdin instanceof Socket) child.stdin.unref();
    return new Guard(child);
  }

  dismiss(): void {
    this.child.kill('SIGKILL');
  }
}
