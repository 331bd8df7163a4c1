import { existsSync } from 'node:fs';
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';

/**
 * Resolves when each thread of the process is stopped. A signal to stop is only noted when `kill` returns, and a server
 * on several threads goes on answering for a moment. Where the system does not tell (it has no /proc), at once.
 */
export async function frozen(pid: number, withinMs = 5_000): Promise<void> {
  const folder = `/proc/${pid}/task`;
  if (!existsSync('/proc/self/task')) return;
  const end = performance.now() + withinMs;
  while (performance.now() < end) {
    const states = await Promise.all((await readdir(folder)).map((thread) => stateOf(join(folder, thread))));
    if (states.every((state) => state === 'T')) return;
    await pause(1);
  }
  throw new Error(`process ${pid} was not stopped within ${withinMs} ms`);
}

/** The first letter after the name, which stands in brackets and may hold anything; a thread that ended has none. */
async function stateOf(thread: string): Promise<string> {
  const text = await readFile(join(thread, 'stat'), 'utf8').catch(() => '');
  return text.slice(text.lastIndexOf(')') + 2)[0] ?? 'gone';
}
