import { startPostgres } from 'throwaway-postgres';

/** A server that one test file may stop and start: in a process of its own, since Jest cannot load its ESM packages. */
const server = await startPostgres({
  settings: { max_connections: '100', fsync: 'off', max_prepared_transactions: '5' },
});

process.on('message', async (order: 'pause' | 'resume' | 'stop') => {
  await server[order]();
  process.send?.('done');
});
// It must not outlive a test that was killed.
process.on('disconnect', async () => {
  await server.stop().catch(() => {});
  process.exit();
});
process.send?.(server.url);
