import { Injectable } from '@nestjs/common';
import { type DeliveryContext, type OutboxEvent, Subscribe } from 'nestjs-outbox';
import { eventually } from '../support/eventually.js';
import { bootApp, type TestApp } from '../support/test-app.js';
import { createDatabase, type TestDatabase } from '../support/test-database.js';

@Injectable()
class Ledger {
  @Subscribe('billing.invoice.paid', 'ledger')
  async post(event: OutboxEvent<{ invoiceId: string }>, context: DeliveryContext): Promise<void> {
    await context.manager.query('INSERT INTO entries (event_id, invoice_id) VALUES ($1, $2)', [
      event.id,
      event.payload.invoiceId,
    ]);
  }
}

describe('publish is part of the transaction', () => {
  let database: TestDatabase;
  let app: TestApp;

  beforeAll(async () => {
    database = await createDatabase();
    await database.query('CREATE TABLE entries (event_id uuid PRIMARY KEY, invoice_id text)');
    app = await bootApp({ url: database.url, providers: [Ledger], manifest: { emits: ['billing.invoice.paid'] } });
  });

  afterAll(async () => {
    await app?.close();
    await database?.drop();
  });

  it('a committed event is handled', async () => {
    const { id } = await app.dataSource.transaction(() =>
      app.publisher.publish('billing.invoice.paid', { invoiceId: 'a' }),
    );
    await eventually('the entry', () => database.value('SELECT count(*)::int FROM entries WHERE event_id = $1', [id]));
  });
});
