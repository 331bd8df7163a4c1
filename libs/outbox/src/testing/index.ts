export { checkOutbox } from './check-outbox.js';
export type { QueueTestApi } from './contract/describe-queue.js';
export { describeQueue } from './contract/describe-queue.js';
export { describeTransport } from './describe-transport.js';
export type { TestApi, TransportSetup } from './probe-site.js';
