import { eventually } from '../support/eventually.js';
import { itOfRows } from '../support/of-rows.js';
import { effect, subscriber, useStage } from '../support/stage.js';
import { TcpProxy } from '../support/tcp-proxy.js';

describe('an answer that is lost on its way, after the server has leased rows to this worker', () => {
  const stage = useStage();
  let proxy: TcpProxy;

  beforeAll(async () => {
    proxy = await TcpProxy.before(stage.database.url);
  });

  afterAll(() => proxy.close());

  const boot = () =>
    stage.boot({
      manifest: { emits: ['test.work.asked'] },
      outbox: { infrastructure: { url: proxy.url } },
      providers: [
        subscriber<{ fail?: boolean }>(
          'test.work.asked',
          'worker',
          async (event, context) => {
            await effect(event, context);
            if (event.payload.fail && context.attempt === 1) throw new Error('once');
          },
          { backoff: ['50ms'] },
        ),
      ],
    });

  for (const [what, statement, payload] of [
    ['of a fan-out', 'outbox_fan_out_', {}],
    ['of a take', 'outbox_take_', { fail: true }],
  ] as const)
    itOfRows(`${what}: the rows are handled all the same, by the process that lives, and uncharged`, async () => {
      const app = await boot();
      // Sees to it that the statement is idle in the loops' polls and the next one does lease.
      await app.publisher.publishNow('test.work.asked', {});
      await stage.drained();
      if (payload && 'fail' in payload) {
        const row = await app.publisher.publishNow('test.work.asked', payload);
        await eventually('it failed', () =>
          stage.database.value('SELECT count(*)::int FROM outbox.attempts WHERE event_id = $1', [row.id]),
        );
      }
      const before = proxy.lost;
      await loseLeasing(app, statement);
      expect(proxy.lost).toBeGreaterThan(before);
      await stage.drained();
      expect(await stage.database.value('SELECT count(*)::int FROM outbox.deliveries WHERE interruptions > 0')).toBe(0);
      await app.close();
    });

  /** Loses answers until one of them had leased a row. */
  async function loseLeasing(app: Awaited<ReturnType<typeof boot>>, statement: string): Promise<void> {
    for (let n = 0; n < 40; n++) {
      const before = proxy.lost;
      if (statement === 'outbox_fan_out_') {
        proxy.loseAnswerTo(statement);
        await app.publisher.publishNow('test.work.asked', {});
      } else {
        proxy.loseAnswerTo(statement);
        await app.publisher.publishNow('test.work.asked', { fail: true });
      }
      await eventually('an answer is lost', () => proxy.lost > before);
      const stranded = await stage.database.value<number>(
        'SELECT count(*)::int FROM outbox.deliveries WHERE lease IS NOT NULL',
      );
      if (stranded > 0) return;
    }
    throw new Error('no lost answer had leased anything');
  }
});
