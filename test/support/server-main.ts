import { startPostgres, type ThrowawayStandby } from 'throwaway-postgres';

/** A server that one test file may stop and start: in a process of its own, since Jest cannot load its ESM packages. */
const server = await startPostgres({
  settings: { max_connections: '100', fsync: 'off', max_prepared_transactions: '5' },
});

let standby: ThrowawayStandby | undefined;

export type ServerOrder = keyof typeof orders;

const orders = {
  pause: () => server.pause(),
  resume: () => server.resume(),
  crash: () => server.pause('immediate'),
  standby: async () => {
    standby = await server.standby();
    return standby.url;
  },
  promote: () => standby?.promote(),
  stop: async () => {
    await standby?.stop();
    await server.stop();
  },
};

process.on('message', async (order: ServerOrder) => {
  process.send?.((await orders[order]()) ?? 'done');
});
// It must not outlive a test that was killed.
process.on('disconnect', async () => {
  await orders.stop().catch(() => {});
  process.exit();
});
process.send?.(server.url);
