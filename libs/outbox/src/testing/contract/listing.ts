import assert from 'node:assert/strict';
import type { DeliveryFilter } from '../../inspect/listing.js';
import { nobody } from './cancel.js';
import type { Crew } from './crew.js';
import type { Stage } from './stage.js';

/** Looking at deliveries and events. */
export function listing(crew: Crew): void {
  crew.group('list and get', (test) => {
    test('by type, pattern and durable', {
      types: ['asked', 'told'],
      durables: { one: {}, two: { types: ['told'] } },
    }, async (stage) => {
      const asked = await stage.publish(1, { delay: '1h' });
      const told = await stage.publish(2, { delay: '1h', verb: 'told' });
      await finds(stage, { type: stage.type('told') }, [`${told} one`, `${told} two`]);
      await finds(stage, { type: stage.type('*') }, [`${told} one`, `${told} two`, `${asked} one`]);
      await finds(stage, { durable: stage.durable('two') }, [`${told} two`]);
    });

    test('by tenant, subject and id, all of which have to hold', async (stage) => {
      const delay = '1h';
      const a = await stage.publish(1, { delay, tenantId: 'acme', subject: 'order/1' });
      const b = await stage.publish(2, { delay, tenantId: 'acme', subject: 'order/2' });
      const c = await stage.publish(3, { delay, tenantId: 'zenith', subject: 'order/1' });
      const durable = stage.durable();
      await finds(stage, { durable, tenantId: 'acme' }, [`${b} one`, `${a} one`]);
      await finds(stage, { durable, subject: 'order/1' }, [`${c} one`, `${a} one`]);
      await finds(stage, { tenantId: 'acme', subject: 'order/1', type: stage.type() }, [`${a} one`]);
      await finds(stage, { eventId: b }, [`${b} one`]);
      await finds(stage, { eventId: b, tenantId: 'zenith' }, []);
    });

    test('by the time of publishing, newest first', async (stage) => {
      const first = await stage.publish(1);
      await stage.handled(first);
      const second = await stage.publish(2);
      await stage.handled(second);
      const { publishedAt } = await stage.delivery(second);
      const filter = { durable: stage.durable(), state: 'completed' } as const;
      assert.deepEqual(
        (await stage.inspector.list(filter)).deliveries.map(({ eventId }) => eventId),
        [second, first],
      );
      await finds(stage, { ...filter, from: publishedAt }, [`${second} one`]);
      await finds(stage, { ...filter, to: publishedAt }, [`${first} one`]);
    });

    test('by state and by the text of the error; without a state all but what is completed', {
      durables: { one: { backoff: ['1h'] } },
    }, async (stage) => {
      stage.handle(({ payload }) => {
        if (payload.n !== 1) throw new Error(payload.n === 2 ? 'No Ink, 100%' : 'no paper');
      });
      const done = await stage.publish(1);
      const ink = await stage.publish(2);
      const paper = await stage.publish(3);
      await stage.reaches(done, 'completed');
      for (const id of [ink, paper]) await stage.reaches(id, 'retryable');
      const durable = stage.durable();
      await finds(stage, { durable }, [`${paper} one`, `${ink} one`]);
      await finds(stage, { durable, state: 'completed' }, [`${done} one`]);
      await finds(stage, { durable, state: ['completed', 'retryable'] }, [`${paper} one`, `${ink} one`, `${done} one`]);
      await finds(stage, { durable, error: 'no ink, 100%' }, [`${ink} one`]);
      await finds(stage, { durable, error: 'no_paper' }, []);
    });

    test('page by page: each delivery once', { durables: { one: {}, two: {} } }, async (stage) => {
      const ids: string[] = [];
      for (let n = 0; n < 7; n++) ids.unshift(await stage.publish(n, { delay: n % 2 ? '1h' : '3d' }));
      const seen: string[] = [];
      let cursor: string | undefined;
      for (let pages = 0; pages < 10; pages++) {
        const page = await stage.inspector.list({ type: stage.type() }, { limit: 4, ...(cursor ? { cursor } : {}) });
        assert.ok(page.deliveries.length <= 4);
        seen.push(...page.deliveries.map(({ eventId, durable }) => `${eventId} ${stage.short(durable)}`));
        if (page.next === null) break;
        cursor = page.next;
      }
      assert.deepEqual([...seen].sort(), ids.flatMap((id) => [`${id} one`, `${id} two`]).sort());
    });

    test('get tells the event, its way and its failed attempts', {
      durables: { one: { backoff: ['100ms'] } },
    }, async (stage) => {
      stage.handle((_, { attempt }) => {
        if (attempt < 3) throw new Error(`attempt ${attempt} failed`);
      });
      const id = await stage.publish(7, { subject: 'order/1', headers: { trace: 't' } });
      await stage.handled(id);
      const details = await stage.inspector.get(id);
      const { publishedAt, ...event } = details?.event ?? {};
      assert.deepEqual(event, {
        id,
        type: stage.type(),
        tenantId: null,
        subject: 'order/1',
        payload: { n: 7 },
        headers: { trace: 't' },
      });
      assert.ok(publishedAt);
      assert.equal(details?.relay.state, 'forwarded');
      assert.equal(details?.relay.error, null);
      assert.deepEqual(
        details?.attempts.map(({ durable, n }) => `${stage.short(durable)} ${n}`),
        ['one 1', 'one 2'],
      );
      assert.match(details?.attempts[1]?.error ?? '', /attempt 2 failed/);
      assert.equal(details?.deliveries[0]?.attempts, 3);
    });

    test('of an event that nobody published there is nothing', async (stage) => {
      assert.equal(await stage.inspector.get(nobody), null);
      assert.deepEqual(await stage.inspector.list({ eventId: nobody }), { deliveries: [], next: null });
    });
  });
}

/** That these are all, each as `id durable`, in any order: ids of one millisecond are in none. */
async function finds(stage: Stage, filter: DeliveryFilter, expected: readonly string[]): Promise<void> {
  const { deliveries } = await stage.inspector.list(filter);
  const names = deliveries.map(({ eventId, durable }) => `${eventId} ${stage.short(durable)}`);
  assert.deepEqual(names.sort(), [...expected].sort());
}
