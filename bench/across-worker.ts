import { bootApp, handlerOf } from './app.js';
import { overJetstream } from './broker.js';

/** The other process of `across`: handles, and tells the publisher's process the id of each event when its handler begins. */
const handler = handlerOf('effects', (event, ctx) => {
  process.send?.(event.id);
  return ctx.manager.query('INSERT INTO effects (event_id) VALUES ($1)', [event.id]);
});
const [url = '', servers, stream] = process.argv.slice(2);
const app = await bootApp({
  url,
  providers: [handler],
  outbox: {
    role: 'worker',
    schema: { onStart: 'migrate' },
    handlers: { concurrency: 4 },
    ...(servers && stream ? { transport: overJetstream(servers, stream) } : {}),
  },
});
process.once('disconnect', () => void app.close().then(() => process.exit()));
process.send?.('ready');
