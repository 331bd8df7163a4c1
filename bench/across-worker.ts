import { bootApp, handlerOf } from './app.js';

/** The other process of `across`: handles, and tells the publisher's process the id of each event when its handler begins. */
const handler = handlerOf('effects', (event, ctx) => {
  process.send?.(event.id);
  return ctx.manager.query('INSERT INTO effects (event_id) VALUES ($1)', [event.id]);
});
const app = await bootApp({
  url: process.argv[2] ?? '',
  providers: [handler],
  outbox: { role: 'worker', schema: { onStart: 'migrate' }, handlers: { concurrency: 4 } },
});
process.once('disconnect', () => void app.close().then(() => process.exit()));
process.send?.('ready');
