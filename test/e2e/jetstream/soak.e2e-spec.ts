import { describeWithOwnNats } from '../../support/nats.js';
import { nothingWrong, SoakBench } from '../../support/soak.js';

describeWithOwnNats('the soak over JetStream', () => {
  const bench = new SoakBench();

  afterEach(() => bench.stop());

  it('loses nothing and repeats nothing while nats-server is stopped, killed, wiped and frozen beside all else', async () => {
    const args = ['--transport', 'jetstream', '--minutes', '0.3', '--seed', '8', '--events-per-second', '20'];
    const { code, out, errors } = await bench.run(args);
    const told = out ? JSON.parse(out) : errors;
    expect(told).toMatchObject({
      ...nothingWrong,
      transport: 'jetstream',
    });
    expect(told.events).toBeGreaterThan(50);
    // The plan of this seed has each of them within its 18 seconds; a busy machine takes longer for everything else.
    for (const n of Object.values(told.broker)) expect(n).toBeGreaterThan(0);
    expect(code).toBe(0);
  }, 360_000);
});
