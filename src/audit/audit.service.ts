import { Injectable } from '@nestjs/common';
import { type DeliveryContext, type OutboxEvent, Subscribe } from 'nestjs-outbox';
import { TenantTransactions } from '../auth/tenant-transactions.js';
import { type InvoicePaid, invoicePaid } from '../billing/invoice-paid.event.js';
import { type SubscriptionRenewed, subscriptionRenewed } from '../billing/subscription-renewed.event.js';
import { AuditLine } from './audit-line.entity.js';

@Injectable()
export class AuditService {
  constructor(private readonly transactions: TenantTransactions) {}

  /** Records whatever came, so it checks nothing. */
  @Subscribe([invoicePaid, subscriptionRenewed], 'audit')
  async record(event: OutboxEvent<InvoicePaid | SubscriptionRenewed>, ctx: DeliveryContext): Promise<void> {
    const line = `${event.occurredAt.toISOString()} ${event.type} ${JSON.stringify(event.payload)}`;
    await ctx.manager.insert(AuditLine, { eventId: event.id, line });
  }

  /** Lines that another system kept before this one. */
  async import(tenant: string, lines: readonly Pick<AuditLine, 'line' | 'createdAt'>[]): Promise<void> {
    await this.transactions.run(tenant, (manager) => manager.insert(AuditLine, [...lines]));
  }
}
