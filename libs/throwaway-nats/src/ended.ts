import { type ChildProcess } from 'node:child_process';
import { once } from 'node:events';

/** Sends the signal and waits until the process is gone; one that does not go is killed after a while, and named. */
export async function ended(child: ChildProcess, signal: 'SIGTERM' | 'SIGKILL', withinMs = 20_000): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  // 'exit' rather than 'close': whoever it has started may hold its output open for as long as it likes.
  const gone = once(child, 'exit');
  child.kill(signal);
  let late: NodeJS.Timeout | undefined;
  const tooLate = new Promise<never>((_, reject) => {
    late = setTimeout(() => {
      child.kill('SIGKILL');
      reject(new Error(`process ${child.pid} (${child.spawnfile}) did not end within ${withinMs} ms of ${signal}`));
    }, withinMs);
  });
  try {
    await Promise.race([gone, tooLate]);
  } finally {
    clearTimeout(late);
  }
}
