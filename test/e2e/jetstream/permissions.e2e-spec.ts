import { readFileSync } from 'node:fs';
import { Durables } from 'nestjs-outbox';
import { jetstream } from 'nestjs-outbox/jetstream';
import { startNats, type ThrowawayNats } from 'throwaway-nats';
import { eventually } from '../../support/eventually.js';
import { describeWithOwnNats } from '../../support/nats.js';
import { effect, subscriber, useStage } from '../../support/stage.js';

/** As the guide prints them. */
const permissions = /```conf\n(publish: .*?)```/s.exec(readFileSync('docs/guide/jetstream.md', 'utf8'))?.[1] ?? '';

describeWithOwnNats('a user of nats-server with the permissions of the guide', () => {
  const stage = useStage();
  let nats: ThrowawayNats;

  beforeAll(async () => {
    nats = await startNats({
      config: `authorization { users: [
        { user: billing, password: secret, permissions: { ${permissions} } }
        { user: own, password: secret, permissions: { ${permissions.replace('_INBOX.>', '_INBOX_own.>').replaceAll('outbox', 'own')} } }
      ] }`,
    });
  });

  afterAll(() => nats?.stop());

  it.each([{ user: 'billing' }, { user: 'own', inboxPrefix: '_INBOX_own', stream: 'own', prefix: 'own' }])(
    '($user) makes, changes and reads what a worker needs, and ends what is retired',
    async (options) => {
      await stage.database.query('DROP SCHEMA IF EXISTS outbox CASCADE');
      const boot = (types: string[], maxAge: '24h' | '48h') =>
        stage.boot({
          manifest: { emits: ['test.work.asked', 'test.more.asked'] },
          providers: types.map((type) => subscriber(type, type.split('.')[1] ?? '', effect)),
          outbox: {
            schema: { onStart: 'migrate' },
            relay: { reconcile: '1s' },
            transport: jetstream({ servers: nats.url, pass: 'secret', maxAge, ...options }),
          },
        });
      const first = await boot(['test.work.asked', 'test.more.asked'], '48h');
      await first.close();
      const app = await boot(['test.work.asked'], '24h');
      expect(app.log.matching(/was changed: max_age/)).toHaveLength(1);
      const ids: string[] = [];
      for (let i = 0; i < 5; i++) ids.push((await app.publisher.publishNow('test.work.asked', { i })).id);
      await eventually('each is handled', async () => {
        const count = 'SELECT count(DISTINCT event_id)::int FROM effects WHERE event_id = ANY ($1)';
        return (await stage.database.value<number>(count, [ids])) === ids.length;
      });
      await stage.database.query(`UPDATE outbox.durables SET seen_at = now() - interval '1 hour' WHERE name = 'more'`);
      await app.app.get(Durables).retire('more');
      const retired = `SELECT verified_to IS NULL FROM outbox.durables WHERE name = 'more'`;
      await eventually('its consumer is gone', () => stage.database.value<boolean>(retired));
      // The reconciler passes by what the broker says is answered.
      await eventually('every message is answered', () =>
        stage.database.value<boolean>(
          `SELECT outbox.uuid7_floor(verified_to) > $1::uuid FROM outbox.durables WHERE name = 'work'`,
          [ids.at(-1)],
        ),
      );
      expect(app.log.matching(/ermission|failed and goes on/)).toEqual([]);
      await app.close();
    },
  );
});
