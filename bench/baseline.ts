import { Client, type ClientBase } from 'pg';
import type { EntityManager } from 'typeorm';
import { DataSource } from 'typeorm';
import { orderPlaced, payloadOf } from './app.js';

/** What the library is compared with: the same rows by hand, every INSERT prepared, one connection per lane. */
export class PlainPg {
  private constructor(private readonly clients: readonly Client[]) {}

  static async open(url: string, lanes: number): Promise<PlainPg> {
    const clients = Array.from({ length: lanes }, () => new Client({ connectionString: url }));
    await Promise.all(clients.map((client) => client.connect()));
    return new PlainPg(clients);
  }

  lane(n: number): Client {
    const client = this.clients[n];
    if (!client) throw new Error(`no lane ${n}`);
    return client;
  }

  /** A transaction with a domain row and an event row: four round trips. */
  async publish(lane: number, n: number): Promise<string> {
    const client = this.lane(lane);
    await client.query('BEGIN');
    await client.query(statements.order(n));
    const id = await insertEvent(client, n);
    await client.query('COMMIT');
    return id;
  }

  /** A transaction with a mark and an effect: four round trips. No event is read and no tenant set. */
  async handle(lane: number, eventId: string): Promise<void> {
    const client = this.lane(lane);
    await client.query('BEGIN');
    await client.query(statements.mark(eventId));
    await client.query(statements.effect(eventId));
    await client.query('COMMIT');
  }

  async close(): Promise<void> {
    await Promise.all(this.clients.map((client) => client.end()));
  }
}

export async function insertEvent(client: ClientBase, n: number): Promise<string> {
  const { rows } = await client.query<{ id: string }>(statements.event(n));
  return rows[0]?.id ?? '';
}

const texts = {
  order: 'INSERT INTO orders (note) VALUES ($1)',
  event: 'INSERT INTO plain_outbox (type, payload) VALUES ($1, $2) RETURNING id',
  mark: "INSERT INTO plain_marks (event_id, durable) VALUES ($1, 'bench')",
  effect: 'INSERT INTO effects (event_id) VALUES ($1)',
};

/** The named, hence prepared, statements of plain pg. */
export const statements = {
  order: (n: number) => ({ name: 'order', text: texts.order, values: orderOf(n) }),
  event: (n: number) => ({ name: 'event', text: texts.event, values: eventOf(n) }),
  mark: (eventId: string) => ({ name: 'mark', text: texts.mark, values: [eventId] }),
  effect: (eventId: string) => ({ name: 'effect', text: texts.effect, values: [eventId] }),
};

/** The same by TypeORM without the library: what of the distance to plain pg is TypeORM's own. */
export class PlainTypeorm {
  private constructor(private readonly dataSource: DataSource) {}

  static async open(url: string, poolSize: number): Promise<PlainTypeorm> {
    return new PlainTypeorm(await new DataSource({ type: 'postgres', url, poolSize }).initialize());
  }

  publish(n: number): Promise<void> {
    return this.dataSource.transaction(async (manager) => {
      await placeOrder(manager, n);
      await manager.query(texts.event, eventOf(n));
    });
  }

  handle(eventId: string): Promise<void> {
    return this.dataSource.transaction(async (manager) => {
      await manager.query(texts.mark, [eventId]);
      await writeEffect(manager, eventId);
    });
  }

  close(): Promise<void> {
    return this.dataSource.destroy();
  }
}

/** The domain row of a publishing transaction, as an application on TypeORM writes it. */
export const placeOrder = (manager: EntityManager, n: number): Promise<unknown> =>
  manager.query(texts.order, orderOf(n));

/** The one row that a handler writes. */
export const writeEffect = (manager: EntityManager, eventId: string): Promise<unknown> =>
  manager.query(texts.effect, [eventId]);

const orderOf = (n: number): unknown[] => [`order ${n}`];
const eventOf = (n: number): unknown[] => [orderPlaced, JSON.stringify(payloadOf(n))];
