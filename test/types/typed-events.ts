// Compiled, never run: what must compile does, and what must not is marked as an expected error. A program of its own,
// because the catalogue that it fills is the whole program's.
import {
  type DeliveryContext,
  defineCommand,
  defineEvent,
  type EventPublisher,
  type OutboxEvent,
  OutboxModule,
  SnoozeError,
  Subscribe,
} from 'nestjs-outbox';
import { z } from 'zod';

declare module 'nestjs-outbox' {
  interface EventCatalog {
    'billing.invoice.voided': { invoiceId: string; reason?: string };
    'crm.contact.merged': { from: string; into: string };
  }
}

declare const publisher: EventPublisher;

export const InvoicePaid = defineEvent(
  'billing.invoice.paid',
  z.object({ invoiceId: z.string(), at: z.coerce.date().optional() }),
);
export const SendMail = defineCommand<{ to: string }>()('notifications.mail.send');
export const Voided = defineEvent('billing.invoice.voided');

export async function publishing(): Promise<void> {
  await publisher.publish(InvoicePaid, { invoiceId: '1' });
  await publisher.publish('billing.invoice.voided', { invoiceId: '1' });
  await publisher.publish(Voided, { invoiceId: '1', reason: 'twice' });
  await publisher.publish(SendMail, { to: 'a@b.c' }, { delay: '10m', subject: '1' });
  const [first, second] = await publisher.publishMany([
    { event: InvoicePaid, payload: { invoiceId: '1' } },
    { event: 'crm.contact.merged', payload: { from: 'a', into: 'b' } },
  ]);
  await publisher.publishMany(['1', '2'].map((invoiceId) => ({ event: InvoicePaid, payload: { invoiceId } })));
  first?.id.toUpperCase();
  second?.duplicate.valueOf();

  // @ts-expect-error a payload of the wrong shape
  await publisher.publish(InvoicePaid, { invoice: '1' });
  // @ts-expect-error a payload of the wrong type
  await publisher.publish(SendMail, { to: 7 });
  // @ts-expect-error a misspelt name
  await publisher.publish('billing.invoice.voidd', { invoiceId: '1' });
  // @ts-expect-error a known name, another's payload
  await publisher.publish('crm.contact.merged', { invoiceId: '1' });
  // @ts-expect-error '10 minutes' is no duration
  await publisher.publish(SendMail, { to: 'a' }, { delay: '10 minutes' });
  // @ts-expect-error a number has no unit
  await publisher.publish(SendMail, { to: 'a' }, { delay: 10 });
  // @ts-expect-error in a list, too
  await publisher.publishMany([{ event: InvoicePaid, payload: { invoice: '1' } }]);
  // @ts-expect-error two tokens are no event type
  defineEvent('invoice.paid');
  // @ts-expect-error nor is a duration without a unit
  new SnoozeError('10');
}

export class Handlers {
  @Subscribe(InvoicePaid, 'ledger', { backoff: ['10s', '1m'], timeout: '20s', concurrency: 2 })
  async post(event: OutboxEvent<{ invoiceId: string; at?: Date }>, ctx: DeliveryContext): Promise<void> {
    event.payload.at?.getTime();
    ctx.signal.throwIfAborted();
  }

  @Subscribe('billing.invoice.voided', 'voids')
  voided(event: OutboxEvent<{ invoiceId: string }>): void {
    event.payload.invoiceId.trim();
  }

  @Subscribe([InvoicePaid, 'billing.invoice.voided'], 'audit')
  both(event: OutboxEvent<{ invoiceId: string }>): void {
    event.payload.invoiceId.trim();
  }

  @Subscribe('billing.*.*', 'audit-all')
  all(event: OutboxEvent): void {
    String(event.payload);
  }

  @Subscribe(SendMail, 'mail')
  noParameters(): void {}

  // @ts-expect-error the payload has no such shape
  @Subscribe(InvoicePaid, 'wrong-payload')
  wrongPayload(event: OutboxEvent<{ amount: number }>): void {
    event.payload.amount.toFixed();
  }

  // @ts-expect-error no event of that name
  @Subscribe('billing.invoice.payed', 'wrong-name')
  wrongName(): void {}

  // @ts-expect-error no option of that name
  @Subscribe(SendMail, 'wrong-option', { maxAttempt: 3 })
  wrongOption(): void {}

  // @ts-expect-error no duration
  @Subscribe(SendMail, 'wrong-duration', { timeout: '1 sec' })
  wrongDuration(): void {}
}

OutboxModule.forFeature({ emits: [InvoicePaid, Voided, SendMail], accepts: ['crm.contact.merged'] });
// @ts-expect-error no event of that name
OutboxModule.forFeature({ emits: ['crm.contact.merge'] });
