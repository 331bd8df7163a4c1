import { Injectable } from '@nestjs/common';
import { type DeliveryContext, type OutboxEvent, Subscribe } from 'nestjs-outbox';
import { type InvoicePaid, invoicePaid, readInvoicePaid } from '../billing/invoice-paid.event.js';
import { LedgerEntry } from './ledger-entry.entity.js';

@Injectable()
export class LedgerService {
  /** Written through the handler's transaction, so an invoice is booked exactly once however often the event comes. */
  @Subscribe(invoicePaid, 'ledger')
  async book(event: OutboxEvent<InvoicePaid>, ctx: DeliveryContext): Promise<void> {
    const { invoiceId, cents } = readInvoicePaid(event);
    await ctx.manager.insert(LedgerEntry, { eventId: event.id, invoiceId, cents });
  }
}
