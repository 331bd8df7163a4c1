import { startNats } from 'throwaway-nats';

/** A process with a nats-server, to be killed. */
const { url, storage } = await startNats();
process.send?.({ url, storage });
