import { randomUUID } from 'node:crypto';
import { setTimeout as pause } from 'node:timers/promises';
import { Injectable } from '@nestjs/common';
import {
  type DeliveryContext,
  EventPublisher,
  type JobContext,
  type OutboxEvent,
  PeriodicJob,
  Subscribe,
} from 'nestjs-outbox';
import { bootApp } from './app.js';
import { failing, type Order, orderBooked, orderPlaced, tickJob } from './events.js';
import { PatientPool } from './patient-pool.js';
import { Random, seedOf } from './random.js';
import { report, type SoakTask } from './reports.js';
import { effectSql, noteSql, tickSql } from './tables.js';

@Injectable()
class OrderHandlers {
  constructor(private readonly publisher: EventPublisher) {}

  @Subscribe(orderPlaced, 'ledger')
  async book(event: OutboxEvent<Order>, context: DeliveryContext): Promise<void> {
    await this.effect(event, context);
    const { how, n, ms } = event.payload;
    if (how === 'slow') await pause(ms, undefined, { signal: context.signal });
    if (how !== 'follow') return;
    const { id } = await this.publisher.publish(orderBooked, { n, how: 'plain', ms: 0 });
    await context.manager.query(noteSql, [id, orderBooked, 'plain']);
  }

  @Subscribe([orderPlaced, orderBooked], failing)
  async mail(event: OutboxEvent<Order>, context: DeliveryContext): Promise<void> {
    await this.effect(event, context);
    const { how, ms } = event.payload;
    if (how === 'slow') await pause(ms, undefined, { signal: context.signal });
    if (how === 'poison' || (how === 'fails' && context.attempt <= 2)) throw new Error(`asked to fail: ${how}`);
    if (how === 'hangs' && context.attempt === 1) await pause(60_000, undefined, { signal: context.signal });
  }

  private async effect(event: OutboxEvent, { manager, durable, attempt }: DeliveryContext): Promise<void> {
    await manager.query(effectSql, [event.id, durable, attempt, process.pid]);
  }
}

/** Writes when it ran on a connection of its own, which no fault ends: the records must not depend on what they judge. */
@Injectable()
class Ticks {
  private readonly witness: PatientPool;

  constructor() {
    this.witness = new PatientPool(process.env['SOAK_URL'] ?? '', 'soak witness');
  }

  @PeriodicJob({ every: '1s' }, { name: tickJob })
  async tick({ slot, attempt, signal }: JobContext): Promise<void> {
    const row = [randomUUID(), slot, attempt, process.pid, new Date()];
    await this.witness.rows(tickSql, [...row, null], signal);
    try {
      // Sometimes longer than a slot, and now and then so long that others take it up if they find its lock free.
      const random = new Random(seedOf(slot.getTime() / 1_000));
      const ms = random.next() < 0.1 ? random.between(5_000, 8_000) : random.between(50, 1_200);
      await pause(ms, undefined, { signal });
    } finally {
      await this.witness.rows(tickSql, [...row, new Date()]);
    }
  }
}

/** A worker that runs until it is stopped, or killed. */
export async function work(task: SoakTask): Promise<void> {
  const app = await bootApp(task, 'soak worker', 'worker', [OrderHandlers, Ticks]);
  process.once('SIGTERM', () => void app.close().finally(() => process.exit()));
  await report({ kind: 'ready' });
}
