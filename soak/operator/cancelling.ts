import type { CancelQuery } from 'nestjs-outbox';
import type { Desk, SeenEvent } from '../desk.js';
import { type Order, orderPlaced } from '../events.js';
import type { Random } from '../random.js';
import { noteSql } from '../tables.js';

/** Cancels young events: by id, key or subject, as an operator and as an app, in transactions that roll back as well. */
export function cancelling(desk: Desk, lane: number): () => Promise<void> {
  const random = desk.random(lane);
  return async () => {
    const event = await desk.event(random);
    if (!event) return;
    const dice = random.next();
    const query = queryOf(event, random);
    if (dice < 0.5) await byOperator(desk, query, random.next() < 0.2);
    else if (dice < 0.75) await inTransaction(desk, query, random.next() < 0.5);
    else if (event.key !== null) await again(desk, event, event.key);
  };
}

function queryOf({ id, type, subject, tenant, key }: SeenEvent, random: Random): CancelQuery {
  const dice = random.next();
  const of = tenant === null ? {} : { tenantId: tenant };
  if (dice < 0.3 && key !== null) return { event: type, unique: key, ...of };
  if (dice < 0.45 && subject !== null) return { event: type, subject, ...of };
  return { id };
}

async function byOperator(desk: Desk, query: CancelQuery, abort: boolean): Promise<void> {
  const op = desk.op();
  const { tooLate } = await desk.inspector.cancel(query, { reason: op, abort });
  desk.done('cancel', op);
  if (abort) desk.aborted += tooLate;
}

/** What was cancelled is written down in the same transaction, so that both are true or neither. */
async function inTransaction(desk: Desk, query: CancelQuery, commit: boolean): Promise<void> {
  const rolledBack = new Error('asked to roll back');
  await desk.dataSource
    .transaction(async (manager) => {
      const { cancelled } = await desk.publisher.with(manager).cancel(query);
      await manager.query(cancelledSql, [desk.op(), cancelled]);
      if (!commit) throw rolledBack;
    })
    .catch((error: unknown) => {
      if (error !== rolledBack) throw error;
    });
}

/** What is cancelled gives its key to the next one, in the same transaction. */
async function again(desk: Desk, { type, tenant, subject }: SeenEvent, key: string): Promise<void> {
  await desk.dataSource.transaction(async (manager) => {
    await manager.query(`SELECT set_config('app.tenant_id', $1, true)`, [tenant ?? '']);
    const publisher = desk.publisher.with(manager);
    const { cancelled, tooLate } = await publisher.cancel({ event: type, unique: key });
    await manager.query(cancelledSql, [desk.op(), cancelled]);
    const order: Order = { n: 0, how: 'plain', ms: 0, key };
    const { id, duplicate } = await publisher.publish(orderPlaced, order, {
      unique: { key },
      ...(subject === null ? {} : { subject }),
    });
    if (!duplicate) await manager.query(noteSql, [id, orderPlaced, 'plain']);
    if (duplicate && cancelled > 0 && tooLate === 0) desk.surprises.push(`the key '${key}' was not given back`);
  });
}

const cancelledSql = 'INSERT INTO cancellations (op, cancelled) VALUES ($1, $2)';
