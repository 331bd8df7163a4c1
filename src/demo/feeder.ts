import type { INestApplicationContext } from '@nestjs/common';
import { tenants } from '../auth/tenant.decorator.js';
import { BillingService } from '../billing/billing.service.js';
import { invoicePaid } from '../billing/invoice-paid.event.js';
import { blobRemoved } from '../file/blob-removed.event.js';
import { FileService } from '../file/file.service.js';
import { deliveriesOf, type PublishedEvent } from './tally.js';

/** Every so manieth event is the removal of a blob, every so manieth mail goes to a greylisted address. */
const blobEvery = 20;
const greylistedEvery = 25;
/** The invoice whose mail nobody takes: its dead letter is part of the show. */
const poison = 4;

/** Plays the users: pays invoices and removes blobs of both tenants, through the same services as the HTTP requests. */
export class Feeder {
  private readonly billing: BillingService;
  private readonly files: FileService;

  constructor(app: INestApplicationContext) {
    this.billing = app.get(BillingService);
    this.files = app.get(FileService);
  }

  /** What number `n` will be, from 0. */
  static typeOf(n: number): string {
    return n % blobEvery === blobEvery - 1 ? blobRemoved : invoicePaid;
  }

  static deliveries(events: number): number {
    return Array.from({ length: events }, (_, n) => deliveriesOf(Feeder.typeOf(n))).reduce((sum, d) => sum + d, 0);
  }

  async feed(n: number): Promise<PublishedEvent> {
    const tenant = tenants[n % tenants.length] ?? '';
    const type = Feeder.typeOf(n);
    if (type === blobRemoved) {
      const blob = await this.files.create(tenant, `scan-${n}.txt`, `page ${n}`);
      const { eventId, path } = await this.files.remove(tenant, blob.id);
      return { eventId, type, path };
    }
    const invoice = await this.billing.create(tenant, 1_000 + n, addressOf(n));
    const { eventId } = await this.billing.pay(tenant, invoice.id);
    return { eventId, type };
  }
}

function addressOf(n: number): string {
  if (n === poison) return 'nobody@example.test';
  if (n % greylistedEvery === 10) return `greylisted-${n}@example.test`;
  return `customer-${n}@example.test`;
}
