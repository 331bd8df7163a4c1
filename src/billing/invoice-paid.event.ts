import { type OutboxEvent, UnrecoverableError } from 'nestjs-outbox';

export const invoicePaid = 'billing.invoice.paid';

export interface InvoicePaid {
  readonly invoiceId: string;
  readonly cents: number;
  readonly email: string;
}

/** The payload, checked. Trying again cannot mend a payload, so what does not fit becomes a dead letter at once. */
export function readInvoicePaid(event: OutboxEvent<InvoicePaid>): InvoicePaid {
  const { invoiceId, cents, email } = (event.payload ?? {}) as Partial<InvoicePaid>;
  if (typeof invoiceId === 'string' && Number.isSafeInteger(cents) && typeof email === 'string')
    return { invoiceId, cents: Number(cents), email };
  throw new UnrecoverableError(
    `the payload of ${event.type} must be { invoiceId: string, cents: integer, email: string }`,
  );
}
