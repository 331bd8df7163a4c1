import { startNats } from 'throwaway-nats';

/** A process with a nats-server, to be killed. */
const { pid, storage } = await startNats();
process.send?.({ pid, storage });
