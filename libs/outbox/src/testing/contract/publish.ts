import assert from 'node:assert/strict';
import type { Crew } from './crew.js';

/** Publishing in, out of and across transactions. */
export function publishing(crew: Crew): void {
  crew.group('publish', (test) => {
    test('an event is there from its commit on, and for nobody before', async (stage) => {
      const { dataSource, publisher } = stage.app;
      const held = stage.gate();
      let id = '';
      const committed = dataSource.transaction(async () => {
        id = (await publisher.publish(stage.type(), { n: 1 })).id;
        await held.pass();
      });
      await held.reached();
      await stage.handled(await stage.publish(2));
      assert.deepEqual(await stage.states(id), {});
      assert.deepEqual(stage.runsOf(id), []);
      held.open();
      await committed;
      await stage.handled(id);
      assert.equal(stage.runsOf(id).length, 1);
    });

    test('a transaction that rolled back has published nothing', async (stage) => {
      const { dataSource, publisher } = stage.app;
      let id = '';
      const rolledBack = dataSource.transaction(async () => {
        id = (await publisher.publish(stage.type(), { n: 1 })).id;
        throw new Error('rolled back');
      });
      await assert.rejects(rolledBack, /rolled back/);
      await stage.handled(await stage.publish(2));
      assert.deepEqual(await stage.states(id), {});
      assert.deepEqual(stage.runsOf(id), []);
    });

    test('a savepoint that was rolled back takes its event along, and no other', async (stage) => {
      const { dataSource, publisher } = stage.app;
      const ids: string[] = [];
      const publish = async (n: number): Promise<void> => {
        ids.push((await publisher.publish(stage.type(), { n })).id);
      };
      await dataSource.transaction(async (manager) => {
        await publish(1);
        const inner = manager.transaction(async () => {
          await publish(2);
          throw new Error('rolled back');
        });
        await assert.rejects(inner, /rolled back/);
        await publish(3);
      });
      const [first = '', second = '', third = ''] = ids;
      await stage.handled(first, third);
      assert.deepEqual(await stage.states(second), {});
    });

    test('publishing outside a transaction is refused', async (stage) => {
      await assert.rejects(stage.publisher.publish(stage.type(), { n: 1 }), { code: 'OUTBOX_NOT_IN_TRANSACTION' });
    });

    test('publishNow commits by itself, whatever becomes of the transaction around it', async (stage) => {
      let id = '';
      const rolledBack = stage.app.dataSource.transaction(async () => {
        id = await stage.publish(1);
        throw new Error('rolled back');
      });
      await assert.rejects(rolledBack, /rolled back/);
      await stage.handled(id);
    });

    test('a transaction opened by hand publishes through with(…)', async (stage) => {
      const runner = stage.app.dataSource.createQueryRunner();
      try {
        const ids: string[] = [];
        for (const end of ['rollbackTransaction', 'commitTransaction'] as const) {
          await runner.startTransaction();
          ids.push((await stage.publisher.with(runner).publish(stage.type(), { n: 1 })).id);
          await runner[end]();
        }
        const [rolledBack = '', committed = ''] = ids;
        await stage.handled(committed);
        assert.deepEqual(await stage.states(rolledBack), {});
      } finally {
        await runner.release();
      }
    });

    test(
      'many at once are answered in their order, and each is handled once by each durable',
      plans.two,
      async (stage) => {
        const { dataSource, publisher } = stage.app;
        const numbers = new Map<string, number | undefined>();
        stage.handle(({ id, payload }) => numbers.set(id, payload.n));
        const events = Array.from({ length: 20 }, (_, n) => ({ event: stage.type(), payload: { n } }));
        const published = await dataSource.transaction(() => publisher.publishMany(events));
        const ids = published.map(({ id }) => id);
        await stage.handled(...ids);
        assert.deepEqual(
          ids.map((id) => numbers.get(id)),
          events.map((_, n) => n),
        );
        assert.equal(stage.runs.length, 40);
        assert.equal(new Set(stage.runs.map(({ eventId, durable }) => `${eventId} ${durable}`)).size, 40);
      },
    );

    test('what a handler publishes commits with it, or not at all', plans.chain, async (stage) => {
      const told: unknown[] = [];
      const ids: string[] = [];
      stage.handle(async ({ type, payload }, { attempt }) => {
        if (type === stage.type('told')) told.push(payload.n);
        else ids.push((await stage.publisher.publish(stage.type('told'), { n: attempt })).id);
        if (attempt === 1 && type === stage.type('asked')) throw new Error('rolled back');
      });
      await stage.reaches(await stage.publish(), 'completed', 'asker');
      const [rolledBack = '', committed = ''] = ids;
      await stage.reaches(committed, 'completed', 'listener');
      assert.deepEqual(await stage.states(rolledBack), {});
      assert.deepEqual(told, [2]);
    });

    test('payload, subject, headers and tenant reach the handler', async (stage) => {
      const seen: unknown[] = [];
      stage.handle(async ({ payload, subject, headers, tenantId }, context) => {
        const [row] = await context.manager.query(`SELECT current_setting('app.tenant_id', true) AS tenant`);
        seen.push({ payload, subject, trace: headers['trace'], tenantId, context: context.tenantId, row });
      });
      const { dataSource, publisher } = stage.app;
      const { id } = await dataSource.transaction(() =>
        publisher.publishFor(
          'acme',
          stage.type(),
          { n: 0.1, text: 'ä\u2028' },
          { subject: 'one/1', headers: { trace: 't' } },
        ),
      );
      await stage.handled(id);
      const expected = { payload: { n: 0.1, text: 'ä\u2028' }, subject: 'one/1', trace: 't', tenantId: 'acme' };
      assert.deepEqual(seen, [{ ...expected, context: 'acme', row: { tenant: 'acme' } }]);
    });
  });
}

const plans = {
  two: { durables: { one: {}, two: {} } },
  chain: { types: ['asked', 'told'], durables: { asker: { types: ['asked'] }, listener: { types: ['told'] } } },
};
