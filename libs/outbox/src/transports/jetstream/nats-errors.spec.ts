import { startNats } from 'throwaway-nats';
import { gate } from '../../../../../test/support/eventually.js';
import { describeWithNats } from '../../../../../test/support/nats.js';
import { CapturedLog } from '../../../../../test/support/test-app.js';
import { natsUrl } from '../../../../../test/support/test-database.js';
import type { OutgoingRow } from '../../core/transport.js';
import { durableOf, partsOf, useBroker } from './broker.fixture.js';
import { ensureConsumer } from './consumer.js';
import { resolve } from './jetstream.options.js';
import { Link } from './link.js';
import { apiCode, brokerWords, isNoResponders, isNotEnabled, rowRefusal } from './nats-errors.js';
import { Sender } from './sender.js';
import { ensureStream } from './stream.js';

const type = 'billing.invoice.paid';
let count = 0;
const row = (more: Partial<OutgoingRow> = {}): OutgoingRow => ({
  id: `019a1b2c-3d4e-7f00-8000-${String(++count).padStart(12, '0')}`,
  type,
  tenantId: null,
  subject: null,
  payload: '{}',
  headers: {},
  occurredAt: new Date(),
  ...more,
});

describeWithNats('publishing', () => {
  const broker = useBroker();
  const links: Link[] = [];
  afterEach(() => Promise.all(links.splice(0).map((link) => link.close())));

  async function sender(stream: string, prefix: string, servers = natsUrl()): Promise<Sender> {
    const { settings } = resolve({ servers, stream, prefix });
    const link = new Link(settings, new CapturedLog());
    links.push(link);
    await link.open();
    return new Sender(link, settings, { installation: 'one', source: 'urn:x' });
  }

  /** A stream of its own, made as an operator might have. */
  async function site(config: object = {}) {
    const stream = broker.name();
    await broker.manager.streams.add({ name: stream, subjects: [`${stream}.>`], ...config });
    return { stream, sender: await sender(stream, stream) };
  }

  it('is told of each event, in order, and the acknowledgement of a duplicate is success', async () => {
    const { stream, sender } = await site();
    const rows = Array.from({ length: 500 }, () => row());
    const sent = rows.map(() => ({ kind: 'sent' }));
    expect(await sender.send(rows)).toEqual({ outcomes: sent });
    expect(await sender.send(rows)).toEqual({ outcomes: sent });
    const { state } = await broker.manager.streams.info(stream);
    expect(state.messages).toBe(500);
    const stored = await broker.manager.streams.getMessage(stream, { seq: 1 });
    expect(stored.header.get('Nats-Msg-Id')).toBe(stored.header.get('ce-id'));
    expect(stored.header.get('Nats-Expected-Stream')).toBe(stream);
  });

  it('does not keep an event back for headers that cannot travel as they are', async () => {
    const { sender } = await site();
    const odd = row({ headers: { 'x y': 'z', x: 'y\r\nz', '': 'a' } });
    expect(await sender.send([odd, row()])).toEqual({ outcomes: [{ kind: 'sent' }, { kind: 'sent' }] });
  });

  it('is pipelined: all of a batch are on their way before the first is answered', async () => {
    const answer = gate();
    let sent = 0;
    const client = {
      publish: () => {
        sent += 1;
        return answer.passed;
      },
    };
    const { settings } = resolve({});
    const sender = new Sender({ client } as unknown as Link, settings, { installation: 'one', source: 'urn:x' });
    const sending = sender.send(Array.from({ length: 500 }, () => row()));
    expect(sent).toBe(500);
    answer.open();
    expect((await sending).outcomes).toHaveLength(500);
  });

  it.each<[string, object, Partial<OutgoingRow>, RegExp]>([
    [
      'larger than the server takes',
      {},
      { payload: JSON.stringify('x'.repeat(1_100_000)) },
      /larger than the server's max_payload/,
    ],
    [
      'larger than the stream takes',
      { max_msg_size: 1_000 },
      { payload: JSON.stringify('x'.repeat(2_000)) },
      /max_msg_size/,
    ],
    ['with headers beyond measure', {}, { headers: { x: 'y'.repeat(70_000) } }, /headers are larger/],
    ['of no type that can be a subject', {}, { type: 'a b.c.d' }, /"a b\.c\.d" is no event type/],
    ['of a type that is a pattern', {}, { type: 'a.*.c' }, /is no event type/],
    ['whose subject is no text', {}, { subject: '\ud800' }, /URI malformed/],
  ])(
    "an event %s is that event's fault: its neighbours go, and the connection stays",
    async (_what, config, bad, says) => {
      const { stream, sender } = await site(config);
      const result = await sender.send([row(), row(bad), row()]);
      expect(result).toEqual({
        outcomes: [{ kind: 'sent' }, { kind: 'refused', reason: expect.stringMatching(says) }, { kind: 'sent' }],
      });
      expect((await broker.manager.streams.info(stream)).state.messages).toBe(2);
      expect(await sender.send([row()])).toEqual({ outcomes: [{ kind: 'sent' }] });
    },
  );

  it.each<[string, () => Promise<Sender>, RegExp]>([
    ['is absent', () => sender(broker.name(), broker.name()), /nobody answers for the stream/],
    ['is full', async () => (await site({ max_bytes: 200, discard: 'new' })).sender, /the stream is full \(max_bytes/],
    ['is full of messages', async () => (await filled()).sender, /the stream is full|maximum messages exceeded/],
    [
      'is another than the subjects lead to',
      async () => sender(broker.name(), (await site()).stream),
      /the subjects lead to another stream/,
    ],
  ])("to a stream that %s is the broker's trouble, and no event's", async (_what, make, says) => {
    const result = await (await make()).send([row(), row()]);
    expect(result.outcomes).toEqual([{ kind: 'unsent' }, { kind: 'unsent' }]);
    expect(result.trouble).toMatchObject({ code: 'OUTBOX_BROKER', message: expect.stringMatching(says) });
  });

  it('to a server that went away is its trouble, at once', async () => {
    const server = await startNats();
    try {
      const gone = await sender('gone', 'gone', server.url);
      await server.kill();
      const { outcomes, trouble } = await gone.send([row()]);
      expect(outcomes).toEqual([{ kind: 'unsent' }]);
      expect(trouble).toMatchObject({ code: 'OUTBOX_BROKER' });
    } finally {
      await server.stop();
    }
  });

  async function filled() {
    const { stream, sender } = await site({ max_msgs: 1, discard: 'new' });
    await broker.client.publish(`${stream}.a.b.c`, '');
    return { stream, sender };
  }
});

describeWithNats('an error of the server', () => {
  const broker = useBroker();
  const error = (work: () => Promise<unknown>) =>
    work().then(
      () => undefined,
      (reason: unknown) => reason,
    );

  it('has a code where it is of its API, and words for people', async () => {
    const absent = await error(() => broker.manager.streams.info(broker.name()));
    expect([apiCode(absent), brokerWords(absent), rowRefusal(absent)]).toEqual([10059, 'stream not found', undefined]);
    const nobody = await error(() => broker.client.publish(`${broker.name()}.a.b.c`, ''));
    expect([apiCode(nobody), isNoResponders(nobody), isNotEnabled(nobody)]).toEqual([undefined, true, true]);
    expect(brokerWords(nobody)).toMatch(/^nobody answers for the stream .*\(503\)$/);
    expect([apiCode(undefined), brokerWords('text'), rowRefusal(new Error('any'))]).toEqual([
      undefined,
      'text',
      undefined,
    ]);
  });

  it('without JetStream is told apart from a stream that is absent', async () => {
    const server = await startNats({ jetstream: false });
    const link = new Link(resolve({ servers: server.url }).settings, new CapturedLog());
    try {
      await link.open();
      const off = await error(() => link.manager.streams.info('outbox'));
      expect(isNotEnabled(off)).toBe(true);
    } finally {
      await link.close();
      await server.stop();
    }
  });

  it('that somebody was first is no error', async () => {
    const stream = broker.name();
    const parts = partsOf(broker, { stream, prefix: stream });
    await ensureStream(parts.manager, parts.settings, parts.log, true);
    const made = () => ensureConsumer(parts, { durable: durableOf('d', ['a.b.c'], new Date()), name: 'd' });
    expect((await Promise.all([made(), made(), made()])).map(({ name }) => name)).toEqual(['d', 'd', 'd']);
  });
});
