export type { JetstreamOptions } from './jetstream.options.js';
export { jetstream } from './jetstream.transport.js';
