import { type DeliveryContext, defineCommand, type JobContext, type OutboxEvent } from 'nestjs-outbox';
import { eventually, gate } from '../support/eventually.js';
import { overOf, retryNow, stateOf, tickNow, yearly } from '../support/jobs.js';
import { effect, job, subscriber, useStage } from '../support/stage.js';
import type { TestApp } from '../support/test-app.js';

const Renew = defineCommand<{ period: string }>()('billing.tenant.renew');

describe('the fan-out form: a tick that publishes one unique command for each tenant', () => {
  const stage = useStage();
  const tenants = Array.from({ length: 25 }, (_, n) => `t${n}`);
  let app: TestApp;

  const commands = () =>
    stage.database.query<{ tenant_id: string; n: number }>(
      `SELECT tenant_id, count(*)::int AS n FROM outbox.events WHERE type = 'billing.tenant.renew' GROUP BY 1`,
    );

  it('an attempt that fails before its commit publishes none, one after it does not publish them again', async () => {
    const duplicates: boolean[][] = [];
    const fanOut = async ({ job: name, slot, attempt }: JobContext): Promise<void> => {
      await app.dataSource.transaction(async () => {
        const published = await app.publisher.publishMany(
          tenants.map((tenantId) => ({
            event: Renew,
            payload: { period: slot.toISOString() },
            tenantId,
            unique: `${name} ${slot.toISOString()}`,
          })),
        );
        duplicates.push(published.map(({ duplicate }) => duplicate));
        if (attempt === 1) throw new Error('before the commit');
      });
      if (attempt === 2) throw new Error('after the commit');
    };
    const renew = async (event: OutboxEvent<{ period: string }>, context: DeliveryContext) => {
      await effect(event, context, `${context.tenantId} ${event.payload.period}`);
    };
    app = await stage.boot({
      manifest: { emits: [Renew] },
      providers: [job('billing.fan-out', yearly, fanOut), subscriber('billing.tenant.renew', 'renewals', renew)],
    });
    await tickNow(stage, app, 'billing.fan-out');
    await retryNow(stage, app, 'billing.fan-out');
    await eventually('the second attempt has committed', async () => (await commands()).length > 0);
    await retryNow(stage, app, 'billing.fan-out');
    const { last_slot: slot } = await eventually('it is done', async () => {
      const state = await stateOf(stage, 'billing.fan-out');
      return state?.outcome === 'done' && state;
    });
    await stage.drained();
    expect(duplicates).toEqual([false, false, true].map((duplicate) => tenants.map(() => duplicate)));
    expect((await commands()).toSorted((a, b) => a.tenant_id.localeCompare(b.tenant_id))).toEqual(
      tenants.toSorted((a, b) => a.localeCompare(b)).map((tenant_id) => ({ tenant_id, n: 1 })),
    );
    const notes = await stage.database.query<{ note: string }>('SELECT note FROM effects');
    expect(notes.map(({ note }) => note).toSorted()).toEqual(
      tenants.map((tenant) => `${tenant} ${slot.toISOString()}`).toSorted(),
    );
  });
});

describe('two apps in one process', () => {
  const stage = useStage();

  it('on two schemas do not meet: jobs of one name run in both, at the same time', async () => {
    const reached = [gate(), gate()];
    const release = gate();
    const slots: Record<string, number[]> = { one: [], two: [] };
    const boot = (app: 'one' | 'two', n: 0 | 1) =>
      stage.boot({
        outbox: { schema: { name: `outbox_${app}`, onStart: 'migrate' } },
        providers: [
          job('test.same', { every: '100ms' }, async ({ slot }: JobContext) => {
            slots[app]?.push(Number(slot));
            reached[n]?.open();
            if (slots[app]?.length === 1) await release.passed;
          }),
        ],
      });
    const apps = await Promise.all([boot('one', 0), boot('two', 1)]);
    await Promise.all(reached.map(({ passed }) => passed));
    const held = `SELECT count(*)::int FROM pg_locks l JOIN pg_stat_activity a USING (pid)
      WHERE l.locktype = 'advisory' AND a.application_name = 'nestjs-outbox jobs' AND a.datname = current_database()`;
    expect(await stage.database.value(held)).toBe(2);
    release.open();
    await eventually('both go on', () => Object.values(slots).every((all) => all.length >= 5));
    for (const all of Object.values(slots)) expect(new Set(all).size).toBe(all.length);
    for (const app of apps) await app.close();
    for (const schema of ['outbox_one', 'outbox_two'])
      expect(
        await stage.database.query(`SELECT job, outcome FROM ${schema}.job_state WHERE job LIKE 'test.%'`),
      ).toEqual([{ job: 'test.same', outcome: 'done' }]);
  });

  it('on one schema with jobs of different names keep to their own', async () => {
    const ran: string[] = [];
    const boot = (name: string) =>
      stage.boot({ providers: [job(name, yearly, ({ job }) => void ran.push(`${job} in ${name}`))] });
    const [a, b] = await Promise.all([boot('test.a'), boot('test.b')]);
    for (const [app, name] of [
      [a, 'test.a'],
      [b, 'test.b'],
    ] as const) {
      await tickNow(stage, app, name);
      await overOf(stage, name);
    }
    expect(ran).toEqual(['test.a in test.a', 'test.b in test.b']);
    await Promise.all([a.close(), b.close()]);
  });
});
