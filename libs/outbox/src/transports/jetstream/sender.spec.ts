import { startNats, type ThrowawayNats } from 'throwaway-nats';
import { describeWithOwnNats } from '../../../../../test/support/nats.js';
import { CapturedLog } from '../../../../../test/support/test-app.js';
import type { OutgoingRow } from '../../core/transport.js';
import { resolve } from './jetstream.options.js';
import { Link } from './link.js';
import { Sender } from './sender.js';
import { ensureStream } from './stream.js';

const allowed = 'billing.invoice.paid';
const forbidden = 'secret.invoice.paid';
let count = 0;
const row = (type: string): OutgoingRow => ({
  id: `019a1b2c-3d4e-7f00-9000-${String(++count).padStart(12, '0')}`,
  type,
  tenantId: null,
  subject: null,
  payload: '{}',
  headers: {},
  occurredAt: new Date(),
});

describeWithOwnNats('an account that may not publish every type', () => {
  let nats: ThrowawayNats;
  let link: Link;
  let sender: Sender;
  let log: CapturedLog;

  beforeAll(async () => {
    nats = await startNats({
      config: `authorization { users: [ { user: app, password: secret,
        permissions: { publish: { deny: ["outbox.secret.>"] } } } ] }`,
    });
    const { settings } = resolve({ servers: nats.url, user: 'app', pass: 'secret' });
    log = new CapturedLog();
    link = new Link(settings, log);
    await link.open();
    await ensureStream(link.manager, settings, log, true);
    sender = new Sender(link, settings, { installation: 'one', source: 'urn:x' });
  });

  afterAll(async () => {
    await link?.close();
    await nats?.stop();
  });

  /** Stored by now, and over the connection that there was from the beginning. */
  const stored = async () => (await link.manager.streams.info('outbox')).state.messages;
  const stillTheSame = () => expect(log.matching(/was lost|was closed|again|^error/)).toEqual([]);

  it('among others it is the fault of that event: its neighbours go, and the connection stays', async () => {
    const before = await stored();
    const { outcomes, trouble } = await sender.send([row(allowed), row(forbidden), row(allowed)]);
    expect(outcomes).toEqual([
      { kind: 'sent' },
      { kind: 'refused', reason: expect.stringMatching(/permissions violation.*outbox\.secret\.invoice\.paid/i) },
      { kind: 'sent' },
    ]);
    expect(trouble).toBeUndefined();
    expect(await stored()).toBe(before + 2);
    stillTheSame();
  });

  it('where nothing else went, it is the trouble of the relay, which charges nothing; what may go goes after it', async () => {
    const before = await stored();
    const { outcomes, trouble } = await sender.send([row(forbidden), row(forbidden)]);
    expect(outcomes).toEqual([{ kind: 'unsent' }, { kind: 'unsent' }]);
    expect(trouble).toMatchObject({
      code: 'OUTBOX_BROKER',
      message: expect.stringMatching(/permissions violation/i),
    });
    expect(await sender.send([row(allowed)])).toEqual({ outcomes: [{ kind: 'sent' }] });
    expect(await stored()).toBe(before + 1);
    stillTheSame();
  });
});
