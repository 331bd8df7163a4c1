import { setTimeout as pause } from 'node:timers/promises';
import type { JobContext } from 'nestjs-outbox';
import { eventually, gate } from '../../support/eventually.js';
import { job, useStage } from '../../support/stage.js';
import { TcpProxy } from '../../support/tcp-proxy.js';

describe('an answer to the scheduler that is lost on its way', () => {
  const stage = useStage();
  let proxy: TcpProxy;

  beforeAll(async () => {
    proxy = await TcpProxy.before(stage.database.url);
  });

  afterAll(() => proxy.close());

  it.each(['job_lock', 'job_tick', 'job_finish', 'job_unlock'])(
    '%s, of a job that has no retries: each slot that was begun is run once, and the job goes on',
    async (statement) => {
      const name = `test.${statement}`;
      const ran: string[] = [];
      const method = ({ slot, attempt }: JobContext) => {
        ran.push(`${slot.toISOString()} ${attempt}`);
      };
      const app = await stage.boot({
        outbox: { infrastructure: { url: proxy.url } },
        providers: [job(name, '* * * * * *', method, { retries: 0 })],
      });
      await eventually('it has run', () => ran.length > 0);
      const lost = proxy.lost;
      proxy.loseAnswerTo(`outbox_${statement}_`);
      await eventually('an answer is lost', () => proxy.lost > lost);
      const [state] = await stage.database.query<{ slot: Date | null }>(
        'SELECT running_slot AS slot FROM outbox.job_state WHERE job = $1',
        [name],
      );
      const before = ran.length;
      await eventually('it goes on', () => ran.length > before + 2);
      await app.close();
      expect(new Set(ran).size).toBe(ran.length);
      expect(ran.filter((run) => !run.endsWith(' 1'))).toEqual([]);
      if (statement === 'job_tick') expect(ran).toContain(`${state?.slot?.toISOString()} 1`);
      expect(app.log.matching(/given up|which is somebody else/)).toEqual([]);
    },
  );
});

describe('an attempt that ends after the scheduler has read its row', () => {
  const stage = useStage();

  it('is not taken for one that was never begun: the next one is the second', async () => {
    const proxy = await TcpProxy.before(stage.database.url);
    const end = gate();
    const attempts: number[] = [];
    const hears = async ({ attempt, signal }: JobContext) => {
      attempts.push(attempt);
      if (attempts.length > 1) return;
      await end.passed;
      throw signal.reason;
    };
    const app = await stage.boot({
      outbox: { infrastructure: { url: proxy.url } },
      // The first in the list is due in every turn, and the turn waits for it.
      providers: [job('test.often', { every: '100ms' }, () => {}), job('test.hears', '* * * * * *', hears)],
    });
    await eventually('it has begun', () => attempts.length === 1);
    proxy.holdAnswersTo('outbox_job_lock_');
    await stage.database.query(
      `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE datname = current_database() AND application_name = 'nestjs-outbox jobs'`,
    );
    await eventually('the scheduler is back, and waits', () => proxy.holds);
    end.open();
    await pause(300);
    proxy.letGo();
    await eventually('it is taken up', () => attempts.length > 1);
    await app.close();
    await proxy.close();
    expect(attempts.slice(0, 2)).toEqual([1, 2]);
  });
});
