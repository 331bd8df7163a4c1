import { Injectable } from '@nestjs/common';
import { type DeliveryContext, type OutboxEvent, Subscribe } from 'nestjs-outbox';
import { type InvoicePaid, invoicePaid, readInvoicePaid } from '../billing/invoice-paid.event.js';
import { MailServer } from './mail-server.js';
import { SentMail } from './sent-mail.entity.js';

@Injectable()
export class NotificationsService {
  constructor(private readonly mailServer: MailServer) {}

  /**
   * A mail cannot be rolled back: when the process dies between sending and the commit, the event comes again and so does
   * the mail. The idempotency key is the same at every attempt, so that the server can tell.
   */
  @Subscribe(invoicePaid, 'receipt-mail')
  async sendReceipt(event: OutboxEvent<InvoicePaid>, ctx: DeliveryContext): Promise<void> {
    const { invoiceId, email } = readInvoicePaid(event);
    const { idempotencyKey } = ctx;
    await this.mailServer.send({ to: email, subject: `Receipt for invoice ${invoiceId}`, idempotencyKey });
    await ctx.manager.insert(SentMail, { eventId: event.id, idempotencyKey, recipient: email });
  }
}
