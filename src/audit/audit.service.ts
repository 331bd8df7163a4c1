import { Injectable } from '@nestjs/common';
import { type DeliveryContext, type OutboxEvent, Subscribe } from 'nestjs-outbox';
import { type InvoicePaid, invoicePaid } from '../billing/invoice-paid.event.js';
import { AuditLine } from './audit-line.entity.js';

@Injectable()
export class AuditService {
  /** Records whatever came, so it checks nothing. */
  @Subscribe(invoicePaid, 'audit')
  async record(event: OutboxEvent<InvoicePaid>, ctx: DeliveryContext): Promise<void> {
    const line = `${event.occurredAt.toISOString()} ${event.type} ${JSON.stringify(event.payload)}`;
    await ctx.manager.insert(AuditLine, { eventId: event.id, line });
  }
}
