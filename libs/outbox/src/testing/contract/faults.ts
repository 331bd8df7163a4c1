import assert from 'node:assert/strict';
import { until } from '../probe-app.js';
import { alone, type Contract, type Crew } from './crew.js';
import { attempts } from './retry.js';

/** Connections that end, processes that stop or are cut off: nothing is lost, and nothing is charged. */
export function faults(contract: Contract, crew: Crew): void {
  crew.group('faults', (test) => {
    test('a handler whose connection was ended runs again, and no attempt is charged', async (stage) => {
      const gate = stage.gate();
      let backend = 0;
      stage.handle(async (_, { manager }) => {
        if (stage.runs.length > 1) return;
        const [row] = await manager.query('SELECT pg_backend_pid() AS pid');
        backend = row.pid;
        await gate.pass();
      });
      const id = await stage.publish();
      await gate.reached();
      await stage.site.terminate(`pid = ${backend}`);
      gate.open();
      await stage.handled(id);
      assert.deepEqual(attempts(stage, id), [1, 1]);
      assert.deepEqual((await stage.inspector.get(id))?.attempts, []);
      assert.equal((await stage.delivery(id)).attempts, 1);
    });

    alone(contract, 'a stop charges nothing: what ran is run by the next process', async (site, stage) => {
      const gate = stage.gate();
      stage.handle(async (_, { signal }, app) => {
        if (app !== 'first') return;
        const aborted = new Promise((_, reject) => signal.addEventListener('abort', () => reject(signal.reason)));
        await Promise.race([gate.pass(), aborted]);
      });
      const first = await stage.boot('first');
      const id = await stage.on(first).publish();
      await gate.reached();
      await site.shut(first);
      stage.on(await stage.boot('second'));
      await stage.handled(id);
      assert.deepEqual(
        stage.runs.map(({ app, attempt }) => `${app} ${attempt}`),
        ['first 1', 'second 1'],
      );
      assert.deepEqual((await stage.inspector.get(id))?.attempts, []);
    });

    if (contract.capabilities.processes === 'many') rescue(contract);
  });
}

function rescue(contract: Contract): void {
  alone(
    contract,
    'what a process held that ended without a word runs elsewhere, and no attempt is charged',
    async (site, stage) => {
      const cable = await site.cable();
      stage.handle(async (_, { manager }, app) => {
        // Statement by statement: the server notices a client that is gone when it answers.
        while (app === 'cut') await manager.query('SELECT pg_sleep(0.1)');
      });
      const cut = await stage.boot('cut', { concurrency: 1, url: cable.url });
      const ids: string[] = [];
      for (let n = 0; n < 10; n++) ids.push(await stage.on(cut).publish(n));
      await until('a handler runs', async () => stage.runs.length > 0);
      // As if it were killed: it cannot tell the database any more that it ends.
      cable.cut();
      await site.shut(cut);
      const other = await stage.boot('other');
      await stage.on(other).handled(...ids);
      for (const id of ids) {
        const [delivery] = (await other.inspector.list({ eventId: id, state: 'completed' })).deliveries;
        assert.equal(delivery?.attempts, 1);
      }
      assert.ok(stage.runs.some(({ app }) => app === 'other'));
    },
  );
}
