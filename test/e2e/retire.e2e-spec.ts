import { Durables } from 'nestjs-outbox';
import { eventually } from '../support/eventually.js';
import { itOfRows } from '../support/of-rows.js';
import { effect, subscriber, useStage } from '../support/stage.js';

const paid = 'test.invoice.paid';
const voided = 'test.invoice.voided';

describe('a retired durable', () => {
  const stage = useStage();
  const waiting = (durable: string) =>
    stage.database.value<number>(
      'SELECT count(*)::int FROM outbox.deliveries d JOIN outbox.durables n ON n.id = d.durable WHERE n.name = $1',
      [durable],
    );
  /** As if its last worker had been seen an hour ago. */
  const unseen = (durable: string) =>
    stage.database.query(`UPDATE outbox.durables SET seen_at = now() - interval '1 hour' WHERE name = $1`, [durable]);
  const manifest = { emits: [paid, voided] };
  const boot = (...durables: [string, string[]][]) =>
    stage.boot({
      manifest,
      providers: durables.map(([durable, types]) => subscriber(types as never, durable, (e, c) => effect(e, c))),
    });

  it('is refused while a worker handles it', async () => {
    const app = await boot(['served', [paid]]);
    await expect(app.app.get(Durables).retire('served')).rejects.toMatchObject({ code: 'OUTBOX_DURABLE_SERVED' });
    await expect(app.app.get(Durables).retire('unknown')).rejects.toThrow("there is no durable 'unknown'");
    await app.close();
  });

  itOfRows('loses what waits for it and gets nothing more, until it is revived', async () => {
    await (await boot(['former', [paid]])).close();
    const app = await boot(['present', [paid]]);
    const durables = app.app.get(Durables);
    const publish = () => app.publisher.publishMany([paid, paid, paid].map((event) => ({ event, payload: {} })));
    await app.dataSource.transaction(publish);
    await eventually('three wait for the former one', async () => (await waiting('former')) === 3);
    expect((await durables.list()).find(({ name }) => name === 'former')).toMatchObject({
      state: 'active',
      waiting: 3,
    });

    await unseen('former');
    expect(await durables.retire('former')).toEqual({ dropped: 3 });
    await app.dataSource.transaction(publish);
    await stage.drained('present');
    expect(await waiting('former')).toBe(0);
    expect((await durables.list()).find(({ name }) => name === 'former')).toMatchObject({
      state: 'retired',
      types: [],
    });

    await durables.revive('former');
    await app.dataSource.transaction(publish);
    await eventually('what is published from now on', async () => (await waiting('former')) === 3);
    await app.close();
  });

  it('may be one type of it alone', async () => {
    await (await boot(['both', [paid, voided]])).close();
    const app = await boot(['both', [paid]]);
    const publish = () => app.publisher.publishMany([paid, voided].map((event) => ({ event, payload: {} })));
    await app.dataSource.transaction(publish);
    await eventually('one is handled, one waits', async () => (await waiting('both')) === 1);
    await eventually('nobody holds it', () =>
      stage.database.value<boolean>(
        `SELECT NOT EXISTS (SELECT 1 FROM outbox.deliveries d JOIN outbox.durables n ON n.id = d.durable WHERE n.name = 'both' AND lease IS NOT NULL)`,
      ),
    );
    expect(await app.app.get(Durables).retire('both', { type: voided })).toEqual({ dropped: 1 });
    await app.dataSource.transaction(publish);
    await eventually(
      'paid is handled twice',
      async () =>
        (await stage.database.value<number>(`SELECT count(*)::int FROM effects WHERE durable = 'both'`)) === 2,
    );
    expect(await waiting('both')).toBe(0);
  });

  it('leaves one that is active as it is when it is revived', async () => {
    const { app } = await boot(['active', [paid]]);
    await app.get(Durables).revive('active');
    expect((await app.get(Durables).list()).find(({ name }) => name === 'active')?.state).toBe('active');
    await expect(app.get(Durables).revive('nobody')).rejects.toThrow(/no durable 'nobody'/);
  });
});

describe('one image, several deployments', () => {
  const stage = useStage();
  const providers = () =>
    ['ledger', 'receipt-mail', 'receipt-print'].map((durable) => subscriber(paid, durable, (e, c) => effect(e, c)));
  const deployment = (handlers: { only?: string[]; except?: string[] }) =>
    stage.boot({
      manifest: { emits: [paid] },
      providers: providers(),
      outbox: { schema: { onStart: 'migrate' }, handlers },
    });

  it('each handles what it is meant to, and misses nothing of before its first start', async () => {
    const mails = await deployment({ only: ['receipt-*'] });
    await mails.publisher.publishNow(paid, {});
    await eventually(
      'both receipts',
      async () => (await stage.database.value<number>('SELECT count(*)::int FROM effects')) === 2,
    );
    await deployment({ except: ['receipt-*'] });
    await eventually(
      'the ledger as well',
      async () =>
        (await stage.database.value<number>(`SELECT count(*)::int FROM effects WHERE durable = 'ledger'`)) === 1,
    );
  });

  it.each([{ only: ['recept-*'] }, { except: ['ledgre'] }])('%j names nothing and does not boot', async (handlers) => {
    await expect(deployment(handlers)).rejects.toThrow(/no durable of this app is called so/);
  });
});
