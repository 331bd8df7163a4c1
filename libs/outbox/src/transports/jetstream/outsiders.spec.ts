import { headers } from 'nats';
import { DeadLetters, type OutboxRootOptions } from 'nestjs-outbox';
import { eventually } from '../../../../../test/support/eventually.js';
import { describeWithNats } from '../../../../../test/support/nats.js';
import { effect, type Run, type Stage, subscriber, useStage } from '../../../../../test/support/stage.js';
import { natsUrl } from '../../../../../test/support/test-database.js';
import { useBroker } from './broker.fixture.js';
import { jetstream } from './jetstream.transport.js';

const paid = 'billing.invoice.paid';
const payload = { invoiceId: '7', note: 'Grüße, "€" \u{1f600}', lines: [{ amount: 12.5 }], nothing: null };
const traceparent = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01';

describeWithNats('events over JetStream, for others', () => {
  const broker = useBroker();
  const [billing, crm] = [useStage(), useStage()];
  const stream = broker.name();
  const outbox = (more: OutboxRootOptions = {}): OutboxRootOptions => ({
    transport: jetstream({ servers: natsUrl(), stream, prefix: stream, ackWait: '2s', source: '/billing' }),
    schema: { onStart: 'migrate' },
    relay: { poll: '50ms', reconcile: '1s' },
    ...more,
  });

  /** The service that publishes. */
  const publisher = () => billing.boot({ manifest: { emits: [paid, 'billing.invoice.void'] }, outbox: outbox() });
  /** One with a database of its own. */
  const service = (stage: Stage, durables: Record<string, Run<never>>, accepts = [paid]) =>
    stage.boot({
      manifest: { accepts },
      providers: Object.entries(durables).map(([name, run]) =>
        subscriber(paid, name, run, { backoff: ['100ms'], maxAttempts: 3 }),
      ),
      outbox: outbox(),
    });
  const effects = (stage: Stage, eventId: string) =>
    stage.database.query('SELECT durable, attempt, note FROM effects WHERE event_id = $1 ORDER BY durable', [eventId]);

  it('are CloudEvents that a plain client can read, and that are stored once however often they are sent', async () => {
    const app = await publisher();
    const options = { subject: 'Größe "L"', headers: { traceparent } };
    const { id } = await app.dataSource.transaction(() => app.publisher.publishFor('acmé', paid, payload, options));
    await billing.drained();
    const message = await broker.manager.streams.getMessage(stream, { last_by_subj: `${stream}.${paid}` });
    expect(message.json()).toEqual(payload);
    const of = (name: string) => message.header.get(name);
    expect(Object.fromEntries(message.header.keys().map((key) => [key, of(key)]))).toEqual({
      'Nats-Msg-Id': id,
      'Nats-Expected-Stream': stream,
      'ce-id': id,
      'ce-specversion': '1.0',
      'ce-source': '/billing',
      'ce-type': paid,
      'ce-subject': 'Gr%C3%B6%C3%9Fe%20%22L%22',
      'ce-tenantid': 'acm%C3%A9',
      'ce-time': expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/),
      'ce-datacontenttype': 'application/json',
      'ce-outboxid': expect.any(String),
      'content-type': 'application/json',
      traceparent,
    });
    const again = headers();
    for (const key of message.header.keys()) again.set(key, of(key));
    expect(await broker.client.publish(message.subject, message.data, { headers: again })).toMatchObject({
      duplicate: true,
      seq: message.seq,
    });
    await app.close();
  });

  it('run in a service with a database of its own, once for each of its durables, as they were published', async () => {
    const seen: unknown[] = [];
    const keep: Run<never> = (event, context) => {
      seen.push({ ...event, durable: context.durable });
      return effect(event, context, context.tenantId ?? '');
    };
    const theirs = await service(crm, { 'crm-scores': keep, 'crm-mails': keep });
    const app = await publisher();
    const options = { subject: 'Größe "L"', headers: { traceparent } };
    const { id } = await app.dataSource.transaction(() => app.publisher.publishFor('acmé', paid, payload, options));
    await eventually('both have run', async () => (await effects(crm, id)).length === 2);
    const meant = { id, type: paid, payload, tenantId: 'acmé', subject: 'Größe "L"', headers: { traceparent } };
    expect(seen).toHaveLength(2);
    for (const durable of ['crm-mails', 'crm-scores'])
      expect(seen).toContainEqual({ ...meant, durable, occurredAt: expect.any(Date) });
    // The message once more, beyond what the server remembers: the mark is theirs, and answers.
    const message = await broker.manager.streams.getMessage(stream, { last_by_subj: `${stream}.${paid}` });
    const again = headers();
    for (const key of message.header.keys()) if (!/^nats-/i.test(key)) again.set(key, message.header.get(key));
    await broker.client.publish(message.subject, message.data, { headers: again });
    await idle('crm-scores');
    expect(await effects(crm, id)).toEqual([
      { durable: 'crm-mails', attempt: 1, note: 'acmé' },
      { durable: 'crm-scores', attempt: 1, note: 'acmé' },
    ]);
    expect(await crm.database.value('SELECT count(*)::int FROM outbox.events WHERE id = $1', [id])).toBe(1);
    expect(await billing.database.value('SELECT count(*)::int FROM outbox.handled WHERE event_id = $1', [id])).toBe(0);
    await Promise.all([theirs.close(), app.close()]);
  });

  it('fail, are tried again and become dead letters there, and an operator there retries them', async () => {
    let healthy = false;
    const attempts: number[] = [];
    const theirs = await service(crm, {
      'crm-fails': (event, context) => {
        attempts.push(context.attempt);
        if (!healthy) throw new Error('not yet');
        return effect(event, context);
      },
    });
    const app = await publisher();
    const { id } = await app.publisher.publishNow(paid, payload);
    const letters = theirs.app.get(DeadLetters);
    await eventually('it is a dead letter', async () => (await letters.list()).some(({ eventId }) => eventId === id));
    expect(attempts).toEqual([1, 2, 3]);
    healthy = true;
    await letters.retry(id, 'crm-fails');
    await eventually('it has run', async () => (await effects(crm, id)).length === 1);
    expect(await billing.database.value('SELECT count(*)::int FROM outbox.dead_letters')).toBe(0);
    await Promise.all([theirs.close(), app.close()]);
  });

  it('of a type that it does not accept run nothing there', async () => {
    const theirs = await service(crm, { 'crm-mute': effect as Run<never> }, ['crm.contact.merged', paid]);
    const deaf = await crm.boot({
      manifest: { emits: ['billing.invoice.void'] },
      providers: [subscriber('billing.invoice.void', 'crm-deaf', effect as Run<never>)],
      outbox: outbox(),
    });
    const app = await publisher();
    const { id } = await app.publisher.publishNow('billing.invoice.void', {});
    await idle('crm-deaf');
    expect(await crm.database.query('SELECT id FROM outbox.events WHERE id = $1', [id])).toEqual([]);
    expect(await effects(crm, id)).toEqual([]);
    await Promise.all([theirs.close(), deaf.close(), app.close()]);
  });

  it('do not reach a second service under the name of a durable that is there: it does not boot, and takes nothing', async () => {
    const first = await service(crm, { 'crm-name': effect as Run<never> });
    const boot = service(billing, { 'crm-name': effect as Run<never>, 'billing-own': effect as Run<never> });
    await expect(boot).rejects.toMatchObject({
      name: 'OutboxBootError',
      code: 'OUTBOX_BOOT',
      problems: [
        { check: 'consumer', message: expect.stringContaining(`durable 'crm-name' is on stream '${stream}'`) },
      ],
    });
    const app = await publisher();
    const { id } = await app.publisher.publishNow(paid, payload);
    await eventually('the first goes on', async () => (await effects(crm, id)).length === 1);
    await Promise.all([first.close(), app.close()]);
  });

  /** Its consumer has had everything, and heard of all of it. */
  const idle = (durable: string) =>
    eventually(`'${durable}' is idle`, async () => {
      const info = await broker.manager.consumers.info(stream, durable);
      return info.num_pending === 0 && info.num_ack_pending === 0 && info.delivered.stream_seq > 0;
    });
});
