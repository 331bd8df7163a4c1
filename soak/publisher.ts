import { once } from 'node:events';
import { setTimeout as pause } from 'node:timers/promises';
import { EventPublisher } from 'nestjs-outbox';
import { DataSource } from 'typeorm';
import { bootApp } from './app.js';
import { keyOf, type Order, orderOf, orderPlaced, subjectOf, tenantOf } from './events.js';
import { publishers } from './plan.js';
import { report, type SoakTask } from './reports.js';
import { noteSql } from './tables.js';

/** Transactions at a time; when the server is away no more pile up. */
const lanes = 6;
/** Every so many orders one is published with a delay. */
const delayEvery = 20;

/** Publishes at its rate until it is told to stop, and says what it knows of its commits. */
export async function publish(task: SoakTask): Promise<void> {
  const stopped = once(process, 'message');
  const app = await bootApp(task, 'soak publisher', 'publisher', []);
  const publishing = new Publishing(app.get(DataSource), app.get(EventPublisher), task);
  await report({ kind: 'ready' });
  await publishing.until(stopped);
  await report({ kind: 'published', committed: publishing.committed, uncertain: publishing.uncertain });
  await app.close();
  process.exit();
}

class Publishing {
  readonly committed: string[] = [];
  /** Transactions that ended with an error: nothing was sent, or nobody knows. The notes say which. */
  uncertain = 0;
  private readonly running = new Set<Promise<void>>();

  constructor(
    private readonly dataSource: DataSource,
    private readonly publisher: EventPublisher,
    private readonly task: SoakTask,
  ) {}

  async until(stopped: Promise<unknown>): Promise<void> {
    let open = true;
    void stopped.then(() => {
      open = false;
    });
    const gapMs = (1_000 * publishers) / this.task.eventsPerSecond;
    let due = performance.now();
    for (let n = 0; open; n++) {
      while (this.running.size >= lanes) await Promise.race(this.running);
      const one = this.publish(orderOf(this.task.seed, this.task.index, n));
      this.running.add(one);
      void one.finally(() => this.running.delete(one));
      // What an outage or a pause has kept from being published is not made up for.
      due = Math.max(due + gapMs, performance.now() - gapMs);
      await pause(Math.max(1, due - performance.now()));
    }
    await Promise.all(this.running);
  }

  private async publish(order: Order): Promise<void> {
    try {
      const id = await this.dataSource.transaction(async (manager) => {
        const key = keyOf(this.task.index, order.n);
        await manager.query(`SELECT set_config('app.tenant_id', $1, true)`, [tenantOf(order.n) ?? '']);
        const { id } = await this.publisher.publish(
          orderPlaced,
          { ...order, key },
          {
            subject: subjectOf(order.n),
            unique: { key },
            ...(order.n % delayEvery === 0 ? { delay: '1s' as const } : {}),
          },
        );
        await manager.query(noteSql, [id, orderPlaced, order.how]);
        return id;
      });
      this.committed.push(id);
    } catch {
      this.uncertain += 1;
      await pause(100);
    }
  }
}
