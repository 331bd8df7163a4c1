import { DemoBench, resultOf } from '../../support/demo.js';
import { describeWithOwnNats } from '../../support/nats.js';

describeWithOwnNats('the demo over JetStream', () => {
  let bench: DemoBench;

  beforeAll(async () => {
    bench = await DemoBench.open();
  });

  afterAll(() => bench?.close());

  afterEach(() => bench.kill());

  it('loses nothing and repeats nothing while its workers are killed at random and nats-server is restarted', async () => {
    const ended = await bench.run([
      '--once',
      '--transport',
      'jetstream',
      '--workers',
      '3',
      '--kill',
      '--events',
      '200',
    ]);
    const { kills, jobTicks, ...told } = resultOf(ended);
    // 190 invoices for three durables and 10 blobs for one; the dead letter is the mail that nobody takes.
    expect({ ...told, errors: ended.errors.match(/^(missing|broken|unfinished|stray|given up).*$/gm) }).toEqual({
      ok: true,
      transport: 'jetstream',
      published: 200,
      handled: 190 * 3 + 10 - 1,
      handledTwice: 0,
      lost: 0,
      retried: expect.any(Number),
      deadLetters: 1,
      seconds: expect.any(Number),
      jobRuns: expect.any(Object),
      natsRestarts: 1,
      errors: null,
    });
    expect(kills).toBeGreaterThan(0);
    expect(Math.min(...Object.values(jobTicks as object))).toBeGreaterThanOrEqual(2);
    expect(ended.code).toBe(0);
    expect(ended.left).toEqual([]);
  }, 240_000);

  it('handles every event once in one process, and its messages carry the first deliveries', async () => {
    // The run before has looked at them a moment ago, and left its watermarks.
    await bench.database.query('UPDATE outbox.durables SET looked_at = NULL, verified_to = NULL');
    const ended = await bench.run(['--once', '--transport', 'jetstream', '--events', '40']);
    expect(resultOf(ended)).toMatchObject({
      ok: true,
      transport: 'jetstream',
      published: 40,
      handled: 38 * 3 + 2 - 1,
      handledTwice: 0,
      lost: 0,
      retried: 2 * 2 + 3,
      deadLetters: 1,
      natsRestarts: 0,
    });
    // Only a durable that a broker serves has a watermark.
    const served = await bench.database.query<{ name: string }>(
      'SELECT name FROM outbox.durables WHERE verified_to IS NOT NULL ORDER BY name',
    );
    expect(served.map(({ name }) => name)).toEqual(['audit', 'blob-remover', 'ledger', 'receipt-mail']);
    expect(ended.left).toEqual([]);
  }, 120_000);

  it('stays up, says where nats-server is, and leaves nothing behind', async () => {
    const ended = await bench.run(['--transport', 'jetstream', '--workers', '1'], { until: /^ +ledger +[1-9]/m });
    expect(ended.errors).toMatch(/^ {2}nats --server nats:\/\/127\.0\.0\.1:\d+ subscribe 'outbox\.>'$/m);
    expect(ended.lines[0]).toMatch(/^first deliveries by nats-server \d+\.\d+\S*, restarted 0 times$/);
    expect(ended.code).toBe(0);
    expect(ended.left).toEqual([]);
  }, 120_000);
});
