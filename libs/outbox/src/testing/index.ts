export { checkOutbox } from './check-outbox.js';
export type { TestApi, TransportSetup } from './describe-transport.js';
export { describeTransport } from './describe-transport.js';
