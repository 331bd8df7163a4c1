import { fork } from 'node:child_process';
import { once } from 'node:events';
import { DemoError, wordsOf } from './demo-error.js';

export interface PostgresProcess {
  readonly url: string;
  stop(): Promise<void>;
}

type Report = { readonly url: string } | { readonly error: string };

/**
 * The throw-away server lives in a process of its own, apart from the terminal's group: Ctrl-C would otherwise stop the
 * database before the app. It goes when the channel to its parent closes, so that a killed demo leaves nothing behind.
 */
export async function startPostgresProcess(main: string, maxConnections: number): Promise<PostgresProcess> {
  const child = fork(main, [], {
    detached: true,
    stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
    env: { ...process.env, OUTBOX_DEMO_PROCESS: 'postgres', OUTBOX_DEMO_CONNECTIONS: String(maxConnections) },
  });
  const exited = once(child, 'exit');
  const report = await Promise.race([
    once(child, 'message').then(([message]) => message as Report),
    exited.then(([code]): Report => ({ error: `its process ended with ${code}` })),
  ]);
  if ('error' in report) throw new DemoError(`the throw-away Postgres did not start: ${report.error}`);
  return {
    url: report.url,
    stop: async () => {
      if (child.connected) child.disconnect();
      await exited;
    },
  };
}

/** What that process does. */
export async function servePostgres(): Promise<void> {
  const orphaned = once(process, 'disconnect');
  try {
    // Imported here alone: the package takes the signals of the process it is loaded into.
    const { startPostgres } = await import('throwaway-postgres');
    const server = await startPostgres({
      settings: { max_connections: process.env['OUTBOX_DEMO_CONNECTIONS'] ?? '100' },
    });
    if (process.connected) process.send?.({ url: server.url });
    await orphaned;
    await server.stop();
  } catch (error) {
    if (process.connected) process.send?.({ error: wordsOf(error) });
  }
  process.exit();
}
