import { headers } from 'nats';
import { eventually } from '../../../../../test/support/eventually.js';
import { describeWithNats } from '../../../../../test/support/nats.js';
import { effect, type Run, subscriber, useStage } from '../../../../../test/support/stage.js';
import type { TestApp } from '../../../../../test/support/test-app.js';
import { natsUrl } from '../../../../../test/support/test-database.js';
import { useBroker } from './broker.fixture.js';
import { jetstream } from './jetstream.transport.js';

const accepted = 'crm.contact.merged';
const own = 'billing.invoice.paid';
const day = 86_400_000;

/** An id as an outbox gives it, for a moment. */
function idAt(at: number): string {
  const hex = at.toString(16).padStart(12, '0');
  const random = Math.floor(Math.random() * 16 ** 12)
    .toString(16)
    .padStart(12, '0');
  return `${hex.slice(0, 8)}-${hex.slice(8)}-7abc-8def-${random}`;
}

const base64 = (text: string): string => Buffer.from(text).toString('base64');

interface Forged {
  readonly id?: string;
  readonly type?: string;
  readonly body?: string;
  readonly values?: Record<string, string>;
  readonly bare?: boolean;
}

describeWithNats('a foreign or forged message on our subjects', () => {
  const broker = useBroker();
  const stage = useStage();
  const stream = broker.name();
  let app: TestApp;
  let ours: string;

  beforeAll(async () => {
    app = await stage.boot({
      manifest: { emits: [own], accepts: [accepted] },
      providers: [
        subscriber('*.*.*', 'forged-all', effect as Run<never>),
        subscriber(own, 'forged-own', effect as Run<never>),
      ],
      outbox: {
        transport: jetstream({ servers: natsUrl(), stream, prefix: stream, ackWait: '2s' }),
        schema: { onStart: 'migrate' },
        relay: { poll: '50ms', reconcile: '1s' },
      },
    });
    ours = await stage.database.value<string>('SELECT installation::text FROM outbox.schema_version');
  });

  async function publish({ id = idAt(Date.now()), type = accepted, body = '{}', values = {}, bare }: Forged) {
    const all = headers();
    if (!bare)
      for (const [name, value] of Object.entries({ 'ce-id': id, 'ce-outboxid': 'theirs', ...values }))
        all.append(name, value);
    await broker.client.publish(`${stream}.${type}`, body, { headers: all });
    return id;
  }

  const idle = () =>
    eventually('everything was given and answered', async () => {
      for (const name of ['forged-all', 'forged-own']) {
        const info = await broker.manager.consumers.info(stream, name);
        if (info.num_pending > 0 || info.num_ack_pending > 0) return false;
      }
      return true;
    });
  const traces = () =>
    stage.database.query(`SELECT (SELECT count(*)::int FROM outbox.events) AS events, (SELECT count(*)::int FROM outbox.handled) AS marks,
      (SELECT count(*)::int FROM outbox.deliveries) AS rows, (SELECT count(*)::int FROM outbox.dead_letters) AS letters, (SELECT count(*)::int FROM effects) AS effects`);

  it.each<[string, Forged, RegExp]>([
    ['that has no headers at all', { bare: true }, /is no event of an outbox/],
    ['without an id', { values: { 'ce-id': '' } }, /is no event of an outbox/],
    ['whose id no outbox gives', { id: "7' OR true --" }, /is no event of an outbox/],
    [
      'in structured mode',
      { bare: true, body: '{"specversion":"1.0","type":"x","id":"1"}' },
      /is no event of an outbox/,
    ],
    ['of a type that nobody accepts', { type: own }, /there is no row/],
    ['of a type of nobody', { type: 'some.thing.else' }, /there is no row/],
    ['of an accepted type, in our name', { values: { 'ce-outboxid': 'OURS' } }, /there is no row/],
    ['of last month', { id: idAt(Date.now() - 31 * day) }, /there is no row/],
    ['of tomorrow', { id: idAt(Date.now() + day) }, /there is no row/],
    ['of the beginning of time', { id: idAt(0) }, /there is no row/],
    ['of the end of it', { id: idAt(2 ** 48 - 1) }, /there is no row/],
    ['whose body is no JSON', { body: '<a/>' }, /cannot be read, and does not run: .*JSON/],
    ['whose body is empty', { body: '' }, /cannot be read/],
    ['with a NUL in its payload', { body: '{"a":"\\u0000"}' }, /payload\.a contains a NUL character/],
    ['with half a surrogate pair in it', { body: '["\\ud800"]' }, /half of a surrogate pair/],
    ['nested beyond what Postgres bears', { body: '['.repeat(20_000) + ']'.repeat(20_000) }, /nested deeper than 512/],
    ['with a NUL in its tenant', { values: { 'ce-tenantid': 'a%00b' } }, /the tenant contains a NUL/],
    ['with a subject beyond measure', { values: { 'ce-subject': 's'.repeat(20_000) } }, /more than 255 characters/],
    ['with a header Postgres cannot hold', { values: { 'x-own': 'a\0b' } }, /headers.* contains a NUL/],
    [
      'with such a header among the odd ones',
      { values: { 'ce-outboxheaders': base64('{"a":"\\u0000"}') } },
      /headers.* contains a NUL/,
    ],
    ['whose odd headers are none', { values: { 'ce-outboxheaders': base64('[1]') } }, /are no headers/],
    ['that says no time', { values: { 'ce-time': '-012345-01-01T00:00:00Z' } }, /is no time/],
    ['whose texts are no UTF-8', { values: { 'ce-subject': '%C0%A0' } }, /URI malformed/],
  ])('%s runs nothing and leaves nothing; it is acknowledged, and logged', async (_what, forged, says) => {
    const before = await traces();
    const values = Object.entries(forged.values ?? {}).map(([key, value]) => [key, value.replace('OURS', ours)]);
    const logged = () => app.log.matching(says).length;
    const lines = logged();
    // The log says a thing once a second, and counts what it held back.
    await eventually('it is logged', async () => {
      await publish({ ...forged, values: Object.fromEntries(values) });
      await idle();
      return logged() > lines;
    });
    expect(await traces()).toEqual(before);
  });

  it('keeps none from running that comes with it', async () => {
    const good = await Promise.all(
      Array.from({ length: 20 }, async (_, n) => {
        void publish({ body: '{"a":"\\u0000"}' });
        void publish({ bare: true });
        return publish({ body: JSON.stringify({ n }), values: { 'ce-time': new Date().toISOString() } });
      }),
    );
    await eventually('the others have run', async () => (await ran(good)).length === 20);
  });

  it('with the id of an event of ours runs that event, as it is in the database, where it is meant, and no further time', async () => {
    const { id } = await app.publisher.publishNow(own, { true: 1 });
    await eventually('it has run', async () => (await ran([id])).length === 2);
    await publish({ id, type: own, body: '{"true":0}' });
    await publish({ id, type: accepted, body: '{"true":0}' });
    await idle();
    expect(await ran([id])).toHaveLength(2);
    expect(await stage.database.value('SELECT payload FROM outbox.events WHERE id = $1', [id])).toEqual({ true: 1 });
  });

  it('with a subject that is no type under our prefix is nobody’s', async () => {
    const before = await traces();
    for (const type of ['a.b', 'a.b.c.d', 'A.B.C', '$JS.x.y', `a.b.${'c'.repeat(200)}`]) await publish({ type });
    await idle();
    expect(await traces()).toEqual(before);
  });

  it('is counted in the log when there are many', async () => {
    for (let i = 0; i < 30; i++) await publish({ bare: true });
    await eventually('the log has counted', async () => {
      await publish({ bare: true });
      return app.log.matching(/is no event of an outbox.*\(and \d+ more like it\)/).length > 0;
    });
    await idle();
  });

  const ran = (ids: readonly string[]) =>
    stage.database.query('SELECT event_id FROM effects WHERE event_id = ANY ($1)', [ids]);
});
