import type { JobContext } from 'nestjs-outbox';
import { eventually } from '../../support/eventually.js';
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
