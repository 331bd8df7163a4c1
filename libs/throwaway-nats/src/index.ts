export { debianMirror, fetchNats, installNats } from './apt.js';
export { ended } from './ended.js';
export { findNats, natsMissing, natsRemedy, natsVersion } from './find.js';
export { type NatsInfo, readInfo } from './info.js';
export { startNats, type ThrowawayNats, type ThrowawayNatsOptions } from './server.js';
