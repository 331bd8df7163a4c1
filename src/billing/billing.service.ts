import { randomUUID } from 'node:crypto';
import { ConflictException, Injectable, NotFoundException } from '@nestjs/common';
import { EventPublisher } from 'nestjs-outbox';
import { IsNull } from 'typeorm';
import { TenantTransactions } from '../auth/tenant-transactions.js';
import { Invoice } from './invoice.entity.js';
import { type InvoicePaid, invoicePaid } from './invoice-paid.event.js';

export interface PaidInvoice {
  readonly id: string;
  readonly eventId: string;
}

@Injectable()
export class BillingService {
  constructor(
    private readonly transactions: TenantTransactions,
    private readonly publisher: EventPublisher,
  ) {}

  create(tenant: string, cents: number, email: string): Promise<{ id: string }> {
    const id = randomUUID();
    return this.transactions.run(tenant, async (manager) => {
      await manager.insert(Invoice, { id, cents, email });
      return { id };
    });
  }

  /** The payment and its event commit together, or neither does. */
  pay(tenant: string, id: string): Promise<PaidInvoice> {
    return this.transactions.run(tenant, async (manager) => {
      const invoice = await manager.findOneBy(Invoice, { id });
      if (!invoice) throw new NotFoundException(`there is no invoice ${id}`);
      const { affected } = await manager.update(Invoice, { id, paidAt: IsNull() }, { paidAt: new Date() });
      if (affected !== 1) throw new ConflictException(`invoice ${id} is paid already`);
      const payload: InvoicePaid = { invoiceId: id, cents: invoice.cents, email: invoice.email };
      const event = await this.publisher.publish(invoicePaid, payload, { subject: id });
      return { id, eventId: event.id };
    });
  }
}
