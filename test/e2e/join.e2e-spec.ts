import type { OutboxBootError } from 'nestjs-outbox';
import { Outbox } from 'nestjs-outbox';
import { DataSource, EntityManager, type EntitySubscriberInterface } from 'typeorm';
import { eventually, gate } from '../support/eventually.js';
import { Invoice, InvoiceService, Line } from '../support/invoices.js';
import { useStage } from '../support/stage.js';
import { Bench, event, unheard } from '../support/typeorm-bench.js';
import { reads, type Way, writes } from '../support/typeorm-ways.js';

const all = (ways: Record<string, Way>): [string, Way][] => Object.entries(ways);

describe("with repositories: 'join'", () => {
  const stage = useStage();
  const bench = new Bench(stage);

  beforeAll(() => bench.boot({ transactions: { repositories: 'join' } }));
  beforeEach(() => bench.prepare());

  const content = () =>
    stage.database.query(
      `SELECT 'invoice' AS what, id, title, total, "deletedAt" FROM invoice
       UNION ALL SELECT 'line', id, text, "invoiceId", NULL FROM line ORDER BY 1, 2`,
    );
  const runners = () =>
    new Set(bench.statements.filter(({ sql }) => !/TRANSACTION/.test(sql)).map(({ runner }) => runner));

  it.each(all({ ...writes, ...reads }))('takes part in a transaction, and rolls back with it: %s', async (_, way) => {
    const { desk } = bench;
    const before = await content();
    const rolledBack = bench.inTransaction(async (manager) => {
      await way(desk, 'joined');
      expect(runners()).toEqual(new Set([manager.queryRunner]));
      throw new Error('rolled back');
    });
    await expect(rolledBack).rejects.toThrow('rolled back');
    expect(await content()).toEqual(before);
    expect(bench.warnings()).toEqual([]);
  });

  it.each(all({ ...writes, ...reads }))("takes part in a handler's transaction: %s", async (_, way) => {
    const { desk } = bench;
    const { error } = await bench.inHandler(
      async ({ manager }) => {
        await way(desk, 'joined');
        expect(runners()).toEqual(new Set([manager.queryRunner]));
      },
      { tenantId: 'acme' },
    );
    expect(error).toBeUndefined();
    expect(bench.warnings()).toEqual([]);
  });

  it('commits with the transaction, together with what it published', async () => {
    const service = bench.app.app.get(InvoiceService);
    const events = () =>
      stage.database.value<number>('SELECT count(*)::int FROM outbox.events WHERE type = $1', [unheard]);
    const before = await events();
    const create = (fail: boolean) =>
      bench.inTransaction(async () => {
        await service.create('joined');
        await bench.app.publisher.publish(unheard, {});
        if (fail) throw new Error('rolled back');
      });
    await expect(create(true)).rejects.toThrow('rolled back');
    expect([await events(), await bench.titles()]).toEqual([before, [{ title: 'first' }]]);
    await create(false);
    expect([await events(), await bench.titles()]).toEqual([before + 1, [{ title: 'first' }, { title: 'joined' }]]);
  });

  it('is undone when the handler fails, and there when it does not', async () => {
    const service = bench.app.app.get(InvoiceService);
    await bench.inHandler(() => service.create('undone'), { fails: true });
    await eventually('the dead letter', async () => bench.app.log.matching(/asked to fail/).length > 0);
    expect(await bench.titles()).toEqual([{ title: 'first' }]);
    await bench.inHandler(() => service.create('done'));
    await eventually('the commit', async () => (await bench.titles()).length === 2);
  });

  it('sees its own writes before the commit, and nobody else does', async () => {
    const { repository, dataSource } = bench.desk;
    await bench.inTransaction(async () => {
      await repository.save({ title: 'joined' });
      expect(await repository.countBy({ title: 'joined' })).toBe(1);
      expect(await dataSource.query("SELECT 1 FROM invoice WHERE title = 'joined'")).toHaveLength(1);
      expect(await bench.titles()).toEqual([{ title: 'first' }]);
    });
  });

  it('a repository that was first asked for inside a transaction works after it, and in the next', async () => {
    const { dataSource } = bench.desk;
    const app = await stage.boot({
      outbox: { role: 'publisher', transactions: { repositories: 'join' } },
      typeorm: { entities: [Invoice, Line] },
    });
    const lines = await app.dataSource.transaction(async () => {
      const repository = app.dataSource.getRepository(Line);
      await repository.save({ text: 'inside' });
      return repository;
    });
    // Builders are what asks a repository for the runner that it has kept.
    await lines.createQueryBuilder().insert().values({ text: 'after' }).execute();
    await expect(
      app.dataSource.transaction(async () => {
        await lines.createQueryBuilder().insert().values({ text: 'undone' }).execute();
        throw new Error('rolled back');
      }),
    ).rejects.toThrow('rolled back');
    const texts = await dataSource.getRepository(Line).find({ order: { id: 'ASC' } });
    expect(texts.map(({ text }) => text)).toEqual(['a', 'inside', 'after']);
  });

  it('a root transaction inside another becomes a savepoint: it can be undone alone, and is undone with the outer', async () => {
    const { dataSource, repository } = bench.desk;
    await bench.inTransaction(async () => {
      await repository.save({ title: 'outer' });
      await expect(
        dataSource.transaction(async () => {
          await repository.save({ title: 'inner' });
          throw new Error('inner only');
        }),
      ).rejects.toThrow('inner only');
      await dataSource.transaction('READ COMMITTED', () => repository.save({ title: 'kept' }));
    });
    expect(await bench.titles()).toEqual([{ title: 'first' }, { title: 'outer' }, { title: 'kept' }]);
    await expect(
      bench.inTransaction(async () => {
        await dataSource.transaction(() => repository.save({ title: 'gone' }));
        throw new Error('outer too');
      }),
    ).rejects.toThrow('outer too');
    expect(await bench.titles()).toHaveLength(3);
  });

  it('a nested transaction that ends when the outer is about to commit leaves it its connection', async () => {
    const { dataSource, repository } = bench.desk;
    const inner = gate();
    let nested: Promise<unknown> | undefined;
    const subscriber: EntitySubscriberInterface = {
      beforeTransactionCommit: async () => {
        const left = nested;
        nested = undefined;
        inner.open();
        await left;
      },
    };
    dataSource.subscribers.push(subscriber);
    try {
      await bench.inTransaction(async () => {
        const begun = gate();
        nested = dataSource.transaction(async () => {
          begun.open();
          await inner.passed;
        });
        await begun.passed;
        await repository.save({ title: 'kept' });
      });
    } finally {
      dataSource.subscribers.splice(dataSource.subscribers.indexOf(subscriber), 1);
    }
    expect(await bench.titles()).toEqual([{ title: 'first' }, { title: 'kept' }]);
  });

  it('parallel saves all take part', async () => {
    const { repository } = bench.desk;
    const titles = Array.from({ length: 10 }, (_, i) => `p${i}`);
    await bench.inTransaction(() => Promise.all(titles.map((title) => repository.save({ title }))));
    expect(await bench.titles()).toHaveLength(11);
    const undone = bench.inTransaction(async () => {
      await Promise.all(titles.map((title) => repository.save({ title: `again ${title}` })));
      throw new Error('rolled back');
    });
    await expect(undone).rejects.toThrow('rolled back');
    expect(await bench.titles()).toHaveLength(11);
  });

  it('two transactions at once keep apart', async () => {
    const { repository } = bench.desk;
    const both = [gate(), gate()] as const;
    const one = (mine: 0 | 1, title: string, fail: boolean) =>
      bench.inTransaction(async () => {
        await repository.save({ title });
        both[mine].open();
        await both[1 - mine]?.passed;
        if (fail) throw new Error('rolled back');
      });
    await Promise.allSettled([one(0, 'kept', false), one(1, 'undone', true)]);
    expect(await bench.titles()).toEqual([{ title: 'first' }, { title: 'kept' }]);
  });

  it('work that goes on after the callback uses connections of its own', async () => {
    const { repository } = bench.desk;
    const over = gate();
    let late: Promise<unknown> = Promise.resolve();
    await bench.inTransaction(async () => {
      late = over.passed.then(() => repository.save({ title: 'late' }));
    });
    over.open();
    await late;
    expect(await bench.titles()).toEqual([{ title: 'first' }, { title: 'late' }]);
  });

  it('a manager that was made before the library came cannot be joined, and is guarded', async () => {
    const early = new EntityManager(bench.desk.dataSource);
    const { error } = await bench.inHandler(() => early.save(Invoice, { title: 'stray' }));
    expect(error).toMatchObject({ code: 'OUTBOX_STRAY_WRITE' });
    expect(await bench.titles()).toEqual([{ title: 'first' }]);
  });

  it('outbox.outside is the way out', async () => {
    const { repository, dataSource } = bench.desk;
    const outbox = bench.app.app.get(Outbox);
    const undone = bench.inTransaction(async () => {
      await repository.save({ title: 'undone' });
      await outbox.outside(() => repository.save({ title: 'audit' }));
      await outbox.outside(() => dataSource.transaction((manager) => manager.insert(Invoice, { title: 'apart' })));
      throw new Error('rolled back');
    });
    await expect(undone).rejects.toThrow('rolled back');
    expect((await bench.titles()).map(({ title }) => title)).toEqual(['first', 'audit', 'apart']);
  });

  it('the manager of the DataSource is still nobody’s to release', async () => {
    const { dataSource } = bench.desk;
    await bench.inTransaction(async (manager) => {
      await expect(dataSource.manager.release()).rejects.toThrow(/release/);
      await manager.query('SELECT 1');
    });
  });

  it('is refused where typeorm-transactional manages the DataSource', async () => {
    const mark = (dataSource: DataSource) => Object.assign(dataSource, { '@transactional/data-source': 'default' });
    const booting = stage.boot({
      manifest: { emits: [event] },
      outbox: { transactions: { repositories: 'join' } },
      providers: [{ provide: Symbol('marked'), inject: [DataSource], useFactory: mark }],
    });
    const error = (await booting.catch((e) => e)) as OutboxBootError;
    expect(error.problems?.map(({ check }) => check)).toEqual(['repositories']);
    expect(error.message).toContain('typeorm-transactional');
  });
});
