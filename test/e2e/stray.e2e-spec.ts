import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { DeadLetters, Outbox, type StrayWriteError } from 'nestjs-outbox';
import { EntityManager, type EntitySubscriberInterface } from 'typeorm';
import { gate } from '../support/eventually.js';
import { Invoice, InvoiceService, Line } from '../support/invoices.js';
import { useStage } from '../support/stage.js';
import { Bench, event, unheard } from '../support/typeorm-bench.js';
import { type Desk, reads, type Way, writes } from '../support/typeorm-ways.js';

const waysFile = join(process.cwd(), 'test/support/typeorm-ways.ts');
const waysLines = readFileSync(waysFile, 'utf8').split('\n');

const all = (ways: Record<string, Way>): [string, Way][] => Object.entries(ways);

describe('the stray-write guard', () => {
  const stage = useStage();
  const bench = new Bench(stage);

  beforeAll(() => bench.boot());
  beforeEach(() => bench.prepare());

  describe('in a handler', () => {
    it.each(all(writes))('refuses before any SQL, naming the line: %s', async (name, way) => {
      const { desk } = bench;
      const { error } = await bench.inHandler(() => way(desk, 'stray'));
      expect(error).toMatchObject({ code: 'OUTBOX_STRAY_WRITE', retryable: false, durable: 'ledger', file: waysFile });
      expect(waysLines[Number((error as StrayWriteError).line) - 1]).toContain(`'${name.replace("'", "\\'")}': `);
      expect(bench.statements).toEqual([]);
      expect(await bench.titles()).toEqual([{ title: 'first' }]);
    });

    it('names three remedies', async () => {
      const { desk } = bench;
      const { error } = await bench.inHandler(() => desk.repository.save({ title: 'stray' }));
      const { message } = error as Error;
      for (const part of [
        'Repository.save at ',
        "'ledger'",
        'ctx.manager',
        'withRepository',
        "repositories: 'join'",
        'outbox.outside(',
      ])
        expect(message).toContain(part);
    });

    it('names the line of a service in another file', async () => {
      const service = bench.app.app.get(InvoiceService);
      const { error } = await bench.inHandler(() => service.create('stray'));
      const { file, line } = error as StrayWriteError;
      expect(file).toBe(join(process.cwd(), 'test/support/invoices.ts'));
      expect(readFileSync(String(file), 'utf8').split('\n')[Number(line) - 1]).toContain("the service's only write");
    });

    it('refuses a manager that was made before the library came', async () => {
      const early = new EntityManager(bench.desk.dataSource);
      const ways = [
        () => early.save(Invoice, { title: 'stray' }),
        () => early.insert(Invoice, { title: 'stray' }),
        () => early.clear(Invoice, { cascade: true }),
        () => early.query("INSERT INTO invoice (title) VALUES ('stray')"),
      ];
      for (const way of ways) {
        const { error } = await bench.inHandler(way);
        expect(error).toMatchObject({ code: 'OUTBOX_STRAY_WRITE' });
      }
      expect(await bench.titles()).toEqual([{ title: 'first' }]);
    });

    it('takes a select that calls an unknown function for a write', async () => {
      const { dataSource } = bench.desk;
      const { error } = await bench.inHandler(() => dataSource.query("SELECT pg_notify('a', 'b')"));
      expect(error).toMatchObject({ code: 'OUTBOX_STRAY_WRITE' });
    });

    it.each(all(reads))('lets an event without a tenant read: %s', async (_, way) => {
      const { desk } = bench;
      const { error } = await bench.inHandler(() => way(desk, ''));
      expect(error).toBeUndefined();
      expect(bench.warnings()).toEqual([]);
    });

    it.each(all(reads))('refuses reads for an event of a tenant, naming the line: %s', async (name, way) => {
      const { desk } = bench;
      const { error } = await bench.inHandler(() => way(desk, ''), { tenantId: 'acme' });
      expect(error).toMatchObject({ code: 'OUTBOX_STRAY_WRITE', durable: 'ledger', file: waysFile });
      expect(waysLines[Number((error as StrayWriteError).line) - 1]).toContain(`'${name.replace("'", "\\'")}': `);
      expect(bench.statements).toEqual([]);
    });

    it('warns once of dataSource.transaction, which is allowed, and refuses strays inside it', async () => {
      const { dataSource, repository } = bench.desk;
      const independent = () =>
        dataSource.transaction((manager) => manager.insert(Invoice, { title: `t${Math.random()}` }));
      for (let i = 0; i < 2; i++) expect((await bench.inHandler(independent)).error).toBeUndefined();
      expect(await bench.titles()).toHaveLength(3);
      expect(bench.warnings()).toHaveLength(1);
      expect(bench.warnings()[0]).toMatch(
        /stray\.e2e-spec\.ts:\d+, inside the handler of 'ledger'.*ctx\.manager\.transaction/,
      );
      const { error } = await bench.inHandler(() => dataSource.transaction(() => repository.save({ title: 'stray' })));
      expect(error).toMatchObject({ code: 'OUTBOX_STRAY_WRITE', durable: 'ledger' });
    });
  });

  describe('in a dataSource.transaction callback', () => {
    it.each(all(writes))('warns once, naming the line: %s', async (name, way) => {
      const { desk } = bench;
      for (const title of ['a', 'b']) await bench.inTransaction(() => way(desk, title).catch(() => {}));
      expect(bench.warnings()).toHaveLength(1);
      const [, file, line] = / at (\S+):(\d+) /.exec(bench.warnings()[0] ?? '') ?? [];
      expect(file).toBe(waysFile);
      expect(waysLines[Number(line) - 1]).toContain(`'${name.replace("'", "\\'")}': `);
    });

    it('warns for each call site apart', async () => {
      const { repository } = bench.desk;
      await bench.inTransaction(async () => {
        await repository.save({ title: 'one' });
        await repository.save({ title: 'two' });
        await Promise.all([repository.save({ title: 'three' }), repository.insert({ title: 'four' })]);
      });
      expect(new Set(bench.warnings()).size).toBe(4);
      expect(bench.warnings()).toHaveLength(4);
    });

    it.each(all(reads))('says nothing of reads: %s', async (_, way) => {
      const { desk } = bench;
      await bench.inTransaction(() => way(desk, ''));
      expect(bench.warnings()).toEqual([]);
    });

    it('says nothing once the callback is over', async () => {
      const { repository } = bench.desk;
      const over = gate();
      let late: Promise<unknown> = Promise.resolve();
      await bench.inTransaction(async () => {
        late = over.passed.then(() => repository.save({ title: 'late' }));
      });
      over.open();
      await late;
      expect(bench.warnings()).toEqual([]);
    });
  });

  describe('is silent about', () => {
    const proper: Record<string, (desk: Desk, manager: EntityManager) => Promise<unknown>> = {
      "the transaction's manager": async ({ invoice }, manager) => {
        await manager.save(Invoice, { title: 'a' });
        await manager.insert(Invoice, { title: 'b' });
        await manager.update(Invoice, invoice.id, { total: 2 });
        await manager.upsert(Invoice, { title: 'b' }, ['title']);
        await manager.increment(Invoice, { id: invoice.id }, 'total', 1);
        await manager.query("INSERT INTO invoice (title) VALUES ('c')");
        await manager.softDelete(Invoice, { title: 'c' });
        await manager.createQueryBuilder().insert().into(Invoice).values({ title: 'd' }).execute();
        await manager.remove(await manager.find(Invoice, { where: { title: 'd' } }));
        await manager.delete(Line, { text: 'none' });
        await manager.count(Invoice);
        await manager.exists(Invoice);
      },
      'repositories of it': async ({ repository }, manager) => {
        await manager.getRepository(Invoice).save({ title: 'a' });
        await manager.withRepository(repository).save({ title: 'b' });
        const extended = manager.withRepository(repository.extend({}));
        await extended.createQueryBuilder().update().set({ total: 3 }).where('true').execute();
        await extended.find();
      },
      'nested transactions of it': (_, manager) =>
        manager.transaction((inner) =>
          inner.transaction(async (innermost) => {
            await innermost.save(Invoice, { title: 'a' });
            await inner.find(Invoice);
          }),
        ),
      'a query runner that was asked for': async ({ dataSource, repository }) => {
        const runner = dataSource.createQueryRunner();
        try {
          await runner.connect();
          await runner.startTransaction();
          await runner.manager.save(Invoice, { title: 'a' });
          await runner.manager.withRepository(repository).find();
          await runner.query('SELECT 1');
          await dataSource.query('UPDATE invoice SET total = 5 WHERE false', [], runner);
          await repository.createQueryBuilder('i', runner).getMany();
          await runner.commitTransaction();
        } finally {
          await runner.release();
        }
      },
      'builders that are given a runner, or only asked for their text': async ({ repository }, manager) => {
        const inner = repository.createQueryBuilder('i').select('i.id').getQuery();
        await manager.query(`SELECT * FROM line WHERE "invoiceId" IN (${inner})`);
        const builder = repository.createQueryBuilder().insert().values({ title: 'a' });
        if (manager.queryRunner) await builder.setQueryRunner(manager.queryRunner).execute();
      },
      "the library's own statements": async () => {
        await bench.app.publisher.publishNow(unheard, {});
        await bench.app.publisher.publish(unheard, {});
        await bench.app.app.get(DeadLetters).list();
        await bench.app.app.get(DeadLetters).retry('00000000-0000-7000-8000-000000000000', 'ledger');
      },
      'anything inside outbox.outside': async ({ repository, dataSource }) => {
        const outbox = bench.app.app.get(Outbox);
        await outbox.outside(() => repository.save({ title: 'a' }));
        await outbox.outside(() => dataSource.query("INSERT INTO invoice (title) VALUES ('b')"));
        await outbox.outside(() => dataSource.transaction((manager) => manager.save(Invoice, { title: 'c' })));
      },
      'lazy relations': async ({ invoice }, manager) => {
        const found = await manager.findOneByOrFail(Invoice, { id: invoice.id });
        await manager.insert(Line, { text: 'b', invoice: { id: invoice.id } as never });
        // Loaded in the transaction, loaded before it, and never loaded: each sees the line that is not committed.
        expect(await found.lines).toHaveLength(2);
        expect(await invoice.lines).toHaveLength(2);
        const made = Object.assign(new Invoice(), { title: 'made' });
        // A class field hides the prototype's lazy property, when fields are compiled to definitions.
        Reflect.deleteProperty(made, 'lines');
        await manager.save(made);
        await manager.insert(Line, { text: 'c', invoice: { id: made.id } as never });
        expect(await made.lines).toHaveLength(1);
      },
    };

    it.each(Object.entries(proper))('%s, in a handler', async (_, work) => {
      const { desk } = bench;
      const { error } = await bench.inHandler(({ manager }) => work(desk, manager), { tenantId: 'acme' });
      expect(error).toBeUndefined();
      expect(bench.warnings()).toEqual([]);
    });

    it.each(Object.entries(proper))('%s, in a transaction', async (_, work) => {
      const { desk } = bench;
      await bench.inTransaction((manager) => work(desk, manager));
      expect(bench.warnings()).toEqual([]);
    });

    it.each(all({ ...writes, ...reads }))('%s, where no transaction is open', async (_, way) => {
      await way(bench.desk, 'free');
      expect(bench.warnings()).toEqual([]);
    });

    it('entity subscribers that use the manager of the event', async () => {
      const { dataSource } = bench.desk;
      const audit: EntitySubscriberInterface<Invoice> = {
        listenTo: () => Invoice,
        afterInsert: ({ manager, entity }) => manager.insert(Line, { text: entity.title }),
      };
      dataSource.subscribers.push(audit as EntitySubscriberInterface);
      try {
        const { error } = await bench.inHandler(({ manager }) => manager.save(Invoice, { title: 'heard' }), {
          tenantId: 'acme',
        });
        expect(error).toBeUndefined();
        await bench.inTransaction((manager) => manager.save(Invoice, { title: 'heard too' }));
      } finally {
        dataSource.subscribers.splice(dataSource.subscribers.indexOf(audit as EntitySubscriberInterface), 1);
      }
      expect(await stage.database.value("SELECT count(*)::int FROM line WHERE text LIKE 'heard%'")).toBe(2);
      expect(bench.warnings()).toEqual([]);
    });
  });

  it('outbox.outside leaves the transaction: what is written there stays, and publish has nothing to join', async () => {
    const outbox = bench.app.app.get(Outbox);
    const { repository } = bench.desk;
    await expect(
      bench.inTransaction(async (manager) => {
        await manager.save(Invoice, { title: 'inside' });
        await outbox.outside(() => repository.save({ title: 'audit' }));
        await expect(outbox.outside(() => bench.app.publisher.publish(event, {}))).rejects.toMatchObject({
          code: 'OUTBOX_NOT_IN_TRANSACTION',
        });
        throw new Error('rolled back');
      }),
    ).rejects.toThrow('rolled back');
    expect(await bench.titles()).toEqual([{ title: 'first' }, { title: 'audit' }]);
  });
});

describe('the stray-write guard, with tenancy configured', () => {
  const bench = new Bench(useStage());
  beforeAll(() => bench.boot({ tenancy: {} }));
  beforeEach(() => bench.prepare());

  it.each(all(reads))('refuses reads in handlers of any event: %s', async (_, way) => {
    const { desk } = bench;
    const { error } = await bench.inHandler(() => way(desk, ''));
    expect(error).toMatchObject({ code: 'OUTBOX_STRAY_WRITE' });
    expect((error as Error).message).toContain('no tenant is set');
  });
});

describe('the stray-write guard, switched off', () => {
  const bench = new Bench(useStage());
  beforeAll(() => bench.boot({ transactions: { repositories: 'off' } }));
  beforeEach(() => bench.prepare());

  it('lets repositories write beside the transaction', async () => {
    const { repository } = bench.desk;
    const { error } = await bench.inHandler(() => repository.save({ title: 'beside' }), { tenantId: 'acme' });
    expect(error).toBeUndefined();
    expect(bench.warnings()).toEqual([]);
    expect(await bench.titles()).toEqual([{ title: 'first' }, { title: 'beside' }]);
  });
});

describe.each(['guard', 'join', 'off'] as const)('after an app with repositories: %s', (repositories) => {
  const stage = useStage();

  it('the DataSource, its manager and its lazy loader are as they were', async () => {
    const app = await stage.boot({ outbox: { transactions: { repositories } } });
    const { dataSource } = app;
    const { manager, relationLoader } = dataSource;
    const own = () => [dataSource, manager, relationLoader].map((object) => Object.getOwnPropertyNames(object));
    const touched = own();
    expect(touched[1]).toContain('transaction');
    await app.close();
    const patched = [
      'query',
      'sql',
      'createQueryRunner',
      'createQueryBuilder',
      'createEntityManager',
      'transaction',
      'save',
      'remove',
      'softRemove',
      'recover',
      'clear',
      'getRepository',
      'getTreeRepository',
      'release',
      'load',
      'queryRunner',
    ];
    for (const names of own()) expect(names.filter((name) => patched.includes(name))).toEqual([]);
    expect(dataSource.manager.save).toBe(Object.getPrototypeOf(manager).save);
  });
});
