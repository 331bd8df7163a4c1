import { DiscardPolicy, nanos, RetentionPolicy, StorageType } from 'nats';
import { describeWithNats } from '../../../../../test/support/nats.js';
import { partsOf, useBroker } from './broker.fixture.js';
import type { JetstreamOptions } from './jetstream.options.js';
import { ensureStream } from './stream.js';

const hours = 3_600_000;

describeWithNats('the stream', () => {
  const broker = useBroker();

  /** What a process with these options does at its start, and its log. */
  async function start(options: JetstreamOptions, update = true) {
    const { manager, settings, log } = partsOf(broker, options);
    return { outcome: await ensureStream(manager, settings, log, update), log };
  }

  function named(): { stream: string; prefix: string } {
    const stream = broker.name();
    return { stream, prefix: stream };
  }

  it('is made when it is absent, as it has to be', async () => {
    const { stream } = named();
    const { outcome, log } = await start({ stream, prefix: stream });
    expect(outcome).toBe('made');
    expect(await broker.config(stream)).toMatchObject({
      subjects: [`${stream}.>`],
      storage: StorageType.File,
      retention: RetentionPolicy.Limits,
      discard: DiscardPolicy.New,
      max_age: nanos(48 * hours),
      max_bytes: -1,
      max_msgs: -1,
      max_msgs_per_subject: -1,
      duplicate_window: nanos(15 * 60_000),
      num_replicas: 1,
    });
    expect(log.lines).toEqual([`log stream '${stream}' was made for ${stream}.>`]);
  });

  it('is found by the next process, which changes nothing and says nothing', async () => {
    const name = named();
    await start(name);
    expect(await start(name)).toMatchObject({ outcome: 'found', log: { lines: [] } });
  });

  it('is changed at a start where it may be changed, and that is logged; what it holds stays', async () => {
    const name = named();
    await start(name);
    await broker.client.publish(`${name.stream}.billing.invoice.paid`, 'kept');
    const { log } = await start({ ...name, maxAge: '24h', maxBytes: 1_000_000, duplicateWindow: '20m' });
    expect(await broker.config(name.stream)).toMatchObject({
      max_age: nanos(24 * hours),
      max_bytes: 1_000_000,
      duplicate_window: nanos(20 * 60_000),
    });
    expect(log.lines).toEqual([
      `log stream '${name.stream}' was changed: max_age 172800 s → 86400 s, max_bytes -1 → 1000000, duplicate_window 900 s → 1200 s`,
    ]);
    expect((await broker.manager.streams.info(name.stream)).state.messages).toBe(1);
  });

  it('is not changed while a process runs, or two versions of an app would do it by turns', async () => {
    const name = named();
    await start(name);
    await start({ ...name, maxAge: '24h' }, false);
    expect((await broker.config(name.stream)).max_age).toBe(nanos(48 * hours));
  });

  it.each([
    ['discards what is old', { discard: DiscardPolicy.Old }, 'discard old → new'],
    ['acknowledges nothing', { no_ack: true }, 'no_ack true → false'],
  ])('that %s is mended', async (_what, config, says) => {
    const { stream } = named();
    await broker.manager.streams.add({ name: stream, subjects: [`${stream}.>`], ...config });
    const { log } = await start({ stream, prefix: stream });
    expect(log.lines.join()).toContain(says);
    await broker.client.publish(`${stream}.billing.invoice.paid`, 'acknowledged');
  });

  it.each([
    ['retention', { retention: RetentionPolicy.Workqueue }, "has retention 'workqueue' and needs 'limits'"],
    ['retention', { retention: RetentionPolicy.Interest }, "has retention 'interest' and needs 'limits'"],
    ['storage', { storage: StorageType.Memory }, "has storage 'memory' and needs 'file'"],
  ])('of another %s is refused, with the remedy, and left as it is', async (_what, config, says) => {
    const { stream } = named();
    await broker.manager.streams.add({ name: stream, subjects: [`${stream}.>`], ...config });
    const before = await broker.manager.streams.info(stream);
    await expect(start({ stream, prefix: stream })).rejects.toThrow(says);
    await expect(start({ stream, prefix: stream })).rejects.toThrow(`nats stream rm ${stream}`);
    expect(await broker.manager.streams.info(stream)).toMatchObject({ created: before.created, config: before.config });
  });

  it.each([
    ['all of its subjects', (prefix: string) => `${prefix}.>`],
    ['some of them', (prefix: string) => `${prefix}.billing.*.paid`],
  ])('whose subjects meet those of another stream, in %s, is refused; both are named', async (_what, subject) => {
    const { stream } = named();
    const other = broker.name();
    await broker.manager.streams.add({ name: other, subjects: [subject(stream)] });
    await expect(start({ stream, prefix: stream })).rejects.toThrow(
      `the subjects ${stream}.> meet those of stream '${other}' (${subject(stream)}); give jetstream({ prefix })`,
    );
    await expect(broker.config(stream)).rejects.toThrow('stream not found');
  });

  it('of ours under another prefix gets that as well, unless another stream has it', async () => {
    const { stream } = named();
    await start({ stream, prefix: stream });
    const [free, taken] = [broker.name(), broker.name()];
    const { log } = await start({ stream, prefix: free });
    expect(log.lines.join()).toContain(`subjects ${stream}.> → ${stream}.>, ${free}.>`);
    expect((await broker.config(stream)).subjects).toEqual([`${stream}.>`, `${free}.>`]);
    await start({ stream: taken, prefix: taken });
    await expect(start({ stream, prefix: taken })).rejects.toThrow(`meet those of stream '${taken}' (${taken}.>)`);
  });

  it('that an operator made for more than our subjects is used as it is', async () => {
    const { stream } = named();
    const wide = `${stream}.>`;
    await start({ stream, prefix: stream });
    await broker.manager.streams.update(stream, { description: 'of the operators' });
    expect(await start({ stream, prefix: `${stream}.shop`, maxAge: '30h' })).toMatchObject({ outcome: 'found' });
    expect(await broker.config(stream)).toMatchObject({ subjects: [wide], description: 'of the operators' });
  });

  it.each([
    ['has other subjects', (other: string) => ({ subjects: [`${other}.>`] }), /its subjects are t-\w+\.> and do not/],
    ['is a mirror', (other: string) => ({ mirror: { name: other } }), /its subjects are none \(a mirror\) and do not/],
  ])('that %s and is not ours is refused', async (_what, config, says) => {
    const { stream } = named();
    const other = broker.name();
    if ('mirror' in config(other)) await start({ stream: other, prefix: other });
    await broker.manager.streams.add({ name: stream, ...config(other) });
    await expect(start({ stream, prefix: stream })).rejects.toThrow(says);
  });

  it('with replicas on a server that is no cluster is refused', async () => {
    const { stream } = named();
    await expect(start({ stream, prefix: stream, replicas: 3 })).rejects.toThrow(
      `stream '${stream}' cannot have 3 replicas: the server is no cluster`,
    );
  });

  it('is made once by processes that start together', async () => {
    const name = named();
    const outcomes = await Promise.all(Array.from({ length: 5 }, () => start(name)));
    expect(outcomes.filter(({ outcome }) => outcome === 'made').length).toBeGreaterThanOrEqual(1);
    expect((await broker.config(name.stream)).subjects).toEqual([`${name.stream}.>`]);
  });
});
