import { AckPolicy, DeliverPolicy, nanos } from 'nats';
import { describeWithNats } from '../../../../../test/support/nats.js';
import { durableOf, partsOf, useBroker } from './broker.fixture.js';
import { type ConsumerParts, ensureConsumer, remakeConsumer, removeConsumers, standingName } from './consumer.js';
import type { JetstreamOptions } from './jetstream.options.js';
import { ensureStream } from './stream.js';

describeWithNats('the consumer of a durable', () => {
  const broker = useBroker();

  /** A stream of its own, and what an outbox on it works with. */
  async function site(options: JetstreamOptions = {}) {
    const stream = broker.name();
    const given = { stream, prefix: stream, ...options };
    const parts = partsOf(broker, given);
    await ensureStream(parts.manager, parts.settings, parts.log, true);
    return { stream, parts, other: (installation: string) => partsOf(broker, given, installation), given };
  }

  const ensure = (parts: ConsumerParts, name: string, patterns: readonly string[], since: Date | null = null) =>
    ensureConsumer(parts, { durable: durableOf(name, patterns, since), name });
  const config = async (stream: string, name: string) => (await broker.manager.consumers.info(stream, name)).config;
  const publish = (stream: string, type: string) => broker.client.publish(`${stream}.${type}`, type);

  async function names(stream: string): Promise<string[]> {
    const all: string[] = [];
    for await (const { name } of broker.manager.consumers.list(stream)) all.push(name);
    return all.toSorted();
  }

  /** Everything it has now, acknowledged, as the types that the bodies name. */
  async function taken(stream: string, name: string): Promise<string[]> {
    const consumer = await broker.client.consumers.get(stream, name);
    const seen: string[] = [];
    for await (const message of await consumer.fetch({ max_messages: 100, expires: 1_000 })) {
      seen.push(message.string());
      message.ack();
    }
    return seen;
  }

  it('is made under its name, with settings that no other version will want changed', async () => {
    const { stream, parts } = await site();
    expect(await ensure(parts, 'ledger', ['billing.invoice.paid'])).toEqual({ name: 'ledger', made: true });
    expect(await config(stream, 'ledger')).toMatchObject({
      durable_name: 'ledger',
      ack_policy: AckPolicy.Explicit,
      ack_wait: nanos(30_000),
      max_deliver: -1,
      max_ack_pending: 10_000,
      deliver_policy: DeliverPolicy.All,
      filter_subject: `${stream}.billing.invoice.paid`,
    });
    expect(await config(stream, 'ledger')).not.toHaveProperty('backoff');
    expect(await config(stream, 'ledger')).not.toHaveProperty('inactive_threshold');
  });

  it('begins when the earliest of its types does, less what two clocks may differ by', async () => {
    const { stream, parts } = await site();
    const since = new Date('2026-03-04T05:06:07.000Z');
    const durable = durableOf('ledger', ['a.b.c'], since);
    const later = { pattern: 'a.b.d', since: new Date('2026-04-01T00:00:00.000Z') };
    await ensureConsumer(parts, { durable: { ...durable, types: [...durable.types, later] }, name: 'ledger' });
    expect(await config(stream, 'ledger')).toMatchObject({
      deliver_policy: DeliverPolicy.StartTime,
      opt_start_time: '2026-03-04T05:01:07Z',
    });
  });

  it('brings several types and patterns, overlapping ones too: by one wide filter on 2.9, by narrow ones since', async () => {
    const { stream, parts } = await site();
    await ensure(parts, 'ledger', ['billing.*.*', 'billing.invoice.paid', 'crm.contact.merged']);
    const { filter_subject, filter_subjects } = await config(stream, 'ledger');
    expect({ filter_subject, filter_subjects }).toEqual(
      broker.manyFilters
        ? { filter_subjects: [`${stream}.billing.*.*`, `${stream}.crm.contact.merged`] }
        : { filter_subject: `${stream}.*.*.*` },
    );
    for (const type of ['billing.invoice.paid', 'billing.order.made', 'crm.contact.merged'])
      await publish(stream, type);
    expect(await taken(stream, 'ledger')).toEqual(['billing.invoice.paid', 'billing.order.made', 'crm.contact.merged']);
  });

  it('of one pattern that covers the others has one filter', async () => {
    const { stream, parts } = await site();
    await ensure(parts, 'ledger', ['billing.invoice.paid', 'billing.*.*']);
    expect((await config(stream, 'ledger')).filter_subject).toBe(`${stream}.billing.*.*`);
  });

  it('is written once: a version with other figures, or fewer types, leaves it as it is', async () => {
    const { stream, parts, given } = await site();
    await ensure(parts, 'ledger', ['a.b.c', 'a.b.d']);
    const before = await broker.manager.consumers.info(stream, 'ledger');
    const older = partsOf(broker, { ...given, ackWait: '5s' });
    for (const patterns of [['a.b.c'], ['a.b.d'], ['a.b.c', 'a.b.d']])
      expect(await ensure(older, 'ledger', patterns)).toMatchObject({ name: 'ledger', made: false });
    expect(await broker.manager.consumers.info(stream, 'ledger')).toMatchObject({
      created: before.created,
      config: before.config,
    });
  });

  it('for a further type is followed by one that begins where it stood, and is removed; old and new versions agree on that one', async () => {
    const { stream, parts } = await site();
    await ensure(parts, 'ledger', ['a.b.c']);
    await publish(stream, 'a.b.c');
    expect(await taken(stream, 'ledger')).toEqual(['a.b.c']);
    // Published after the registration of its type, and before the consumer is there that gets it.
    for (const type of ['a.b.d', 'a.b.c', 'a.b.d']) await publish(stream, type);
    const { name, made } = await ensure(parts, 'ledger', ['a.b.c', 'a.b.d']);
    expect({ made, names: await names(stream) }).toEqual({ made: true, names: [name] });
    expect(await taken(stream, name)).toEqual(['a.b.d', 'a.b.c', 'a.b.d']);
    const settings = await config(stream, name);
    for (const patterns of [['a.b.c'], ['a.b.c', 'a.b.d'], ['a.b.c']])
      expect(await ensure(parts, 'ledger', patterns)).toMatchObject({ name, made: false });
    expect(await config(stream, name)).toEqual(settings);
  });

  it('gives what nobody has settled to the one that follows it', async () => {
    const { stream, parts } = await site();
    await ensure(parts, 'ledger', ['a.b.c']);
    for (let i = 0; i < 3; i++) await publish(stream, 'a.b.c');
    const consumer = await broker.client.consumers.get(stream, 'ledger');
    const [first, second] = [await consumer.next(), await consumer.next()];
    await second?.ackAck();
    expect(first?.seq).toBe(1);
    const { name } = await ensure(parts, 'ledger', ['a.b.c', 'a.b.d']);
    expect(await taken(stream, name)).toHaveLength(3);
  });

  it('whose successor was made by a process that died over it is removed by the next', async () => {
    const { stream, parts } = await site();
    await ensure(parts, 'ledger', ['a.b.c']);
    const { description, ...old } = await config(stream, 'ledger');
    const { name } = await ensure(parts, 'ledger', ['a.b.c', 'a.b.d']);
    await broker.manager.consumers.add(stream, { ...old, description: description ?? '', name: 'ledger' });
    expect(await names(stream)).toEqual(['ledger', name]);
    expect(await ensure(parts, 'ledger', ['a.b.c', 'a.b.d'])).toMatchObject({ name, made: false });
    expect(await names(stream)).toEqual([name]);
  });

  it('is made again from where it is told, by the first process that wants it', async () => {
    const { stream, parts } = await site();
    await ensure(parts, 'ledger', ['a.b.c', 'a.b.d']);
    for (const type of ['a.b.c', 'a.b.d', 'a.b.c']) await publish(stream, type);
    const before = await broker.manager.consumers.info(stream, 'ledger');
    expect(await remakeConsumer(parts, before, { sequence: 2 })).toBe(true);
    expect(await remakeConsumer(parts, before, { sequence: 3 })).toBe(false);
    const { filter_subject, filter_subjects } = before.config;
    expect(await config(stream, 'ledger')).toMatchObject(filter_subjects ? { filter_subjects } : { filter_subject });
    expect(await taken(stream, 'ledger')).toEqual(['a.b.d', 'a.b.c']);
  });

  it('is found by the name of the durable, whatever it is called by now', async () => {
    const { parts, other } = await site();
    expect(await standingName(parts, 'ledger')).toBe('ledger');
    await ensure(parts, 'ledger', ['a.b.c']);
    const { name } = await ensure(parts, 'ledger', ['a.b.c', 'a.b.d']);
    expect(await standingName(parts, 'ledger')).toBe(name);
    expect(await standingName(other('two'), 'ledger')).toBe('ledger');
  });

  it('has nothing to do with a durable whose name begins alike', async () => {
    const { stream, parts } = await site();
    await ensure(parts, 'report-20261129', ['a.b.c']);
    await ensure(parts, 'report', ['a.b.c']);
    const { name } = await ensure(parts, 'report', ['a.b.c', 'a.b.d']);
    expect(await names(stream)).toEqual(['report-20261129', name].toSorted());
    await removeConsumers(parts, 'report');
    expect(await names(stream)).toEqual(['report-20261129']);
  });

  it('of another database is refused by name, left alone, and not removed with a durable of ours', async () => {
    const { stream, parts, other } = await site();
    await ensure(parts, 'ledger', ['a.b.c']);
    const before = await broker.manager.consumers.info(stream, 'ledger');
    for (const patterns of [['a.b.c'], ['a.b.d']])
      await expect(ensure(other('two'), 'ledger', patterns)).rejects.toThrow(
        `durable 'ledger' is on stream '${stream}' already, for another database`,
      );
    await removeConsumers(other('two'), 'ledger');
    expect(await broker.manager.consumers.info(stream, 'ledger')).toMatchObject({ created: before.created });
  });

  it('of another database is refused whatever it is called by now', async () => {
    const { stream, parts, other } = await site();
    await ensure(parts, 'ledger', ['a.b.c']);
    const { name } = await ensure(parts, 'ledger', ['a.b.c', 'a.b.d']);
    await expect(ensure(other('two'), 'ledger', ['a.b.c'])).rejects.toThrow('already, for another database');
    expect(await names(stream)).toEqual([name]);
  });

  it('is one when several processes want it at once', async () => {
    const { stream, parts } = await site();
    const found = await Promise.all(Array.from({ length: 5 }, () => ensure(parts, 'ledger', ['a.b.c'])));
    expect(new Set(found.map(({ name }) => name))).toEqual(new Set(['ledger']));
    const after = await Promise.all(Array.from({ length: 5 }, () => ensure(parts, 'ledger', ['a.b.c', 'a.b.d'])));
    expect(await names(stream)).toEqual([...new Set(after.map(({ name }) => name))]);
  });
});
