import { setTimeout as pause } from 'node:timers/promises';
import { type DeliveryContext, type OutboxEvent } from 'nestjs-outbox';
import { subscriber, useStage } from '../support/stage.js';
import type { TestApp } from '../support/test-app.js';

const event = 'test.race.asked';
const overBroker = (globalThis as { outboxTransport?: string }).outboxTransport === 'jetstream';
const races = overBroker ? 600 : 10_000;
/** Races that are under way at once. */
const lanes = 12;

interface Race {
  readonly id: string;
  /** What cancelling answered. */
  readonly won: boolean;
  /** The canceller rolled back after that. */
  readonly undone: boolean;
}

interface Outcome {
  readonly id: string;
  readonly runs: number;
  readonly verdicts: string;
}

/**
 * Each event is published and cancelled a moment later, by connections of their own, while a worker takes what comes. The
 * moment follows the outcome, so that both are at the line together. A third of the cancellers roll back; one handler of
 * ten fails at first, so that some races are for a later attempt.
 */
describe('cancelling against the claim', () => {
  const stage = useStage();
  let desk: TestApp;

  async function handle(given: OutboxEvent<{ n: number }>, { manager, durable, attempt }: DeliveryContext) {
    if (given.payload.n % 10 === 0 && attempt === 1) throw new Error('asked to fail at first');
    await manager.query('INSERT INTO effects (event_id, durable) VALUES ($1, $2)', [given.id, durable]);
  }

  beforeAll(async () => {
    const manifest = { emits: [event] };
    await stage.boot({
      manifest,
      outbox: { handlers: { concurrency: 8 } },
      typeorm: { poolSize: 12 },
      providers: [subscriber(event, 'ledger', handle, { backoff: ['5ms'] })],
    });
    desk = await stage.boot({ manifest, outbox: { role: 'publisher' }, typeorm: { poolSize: lanes } });
  });

  /** Milliseconds between the publish and the cancel. */
  let apart = 3;

  async function race(n: number): Promise<Race> {
    const { id } = await desk.publisher.publishNow(event, { n });
    await pause(apart * (0.5 + Math.random()));
    const undone = n % 3 === 0;
    let answer = { cancelled: 0, tooLate: 0 };
    await desk.dataSource
      .transaction(async () => {
        answer = await desk.publisher.cancel({ id });
        // Some are open for a while when the claim comes.
        if (n % 7 === 0) await pause(3);
        if (undone) throw new Error('rolled back');
      })
      .catch((error: Error) => {
        if (error.message !== 'rolled back') throw error;
      });
    if (answer.cancelled + answer.tooLate !== 1) throw new Error(`${id}: ${JSON.stringify(answer)}`);
    const won = answer.cancelled === 1;
    apart = Math.min(500, Math.max(0.2, apart * (won ? 1.05 : 0.95)));
    return { id, won, undone };
  }

  async function outcomes(): Promise<Map<string, Outcome>> {
    const rows = await stage.database.query<Outcome & { id: string }>(
      `SELECT e.id, (SELECT count(*)::int FROM effects x WHERE x.event_id = e.id) AS runs,
        (SELECT string_agg(h.verdict::text, '' ORDER BY h.durable) FROM outbox.handled h WHERE h.event_id = e.id) AS verdicts FROM outbox.events e`,
    );
    return new Map(rows.map((row) => [row.id, row]));
  }

  it(`exactly one of the two wins, ${races} times`, async () => {
    const done: Race[] = [];
    let next = 0;
    await Promise.all(
      Array.from({ length: lanes }, async () => {
        while (next < races) done.push(await race(++next));
      }),
    );
    await stage.drained();
    const seen = await outcomes();
    const wrong = done.filter(({ id, won, undone }) => {
      const outcome = seen.get(id);
      return won && !undone
        ? outcome?.runs !== 0 || outcome.verdicts !== 'cc'
        : outcome?.runs !== 1 || outcome.verdicts !== 'd';
    });
    expect(wrong.map((each) => ({ ...each, ...seen.get(each.id) }))).toEqual([]);
    expect(done).toHaveLength(races);
    // Or it was no race.
    const won = done.filter((each) => each.won).length;
    expect(Math.min(won, races - won)).toBeGreaterThan(races / 10);
  });
});
