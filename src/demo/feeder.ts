import type { INestApplicationContext } from '@nestjs/common';
import { AuditService } from '../audit/audit.service.js';
import { SessionService } from '../auth/session.service.js';
import { tenants } from '../auth/tenant.decorator.js';
import { BillingService } from '../billing/billing.service.js';
import { invoicePaid } from '../billing/invoice-paid.event.js';
import { blobRemoved } from '../file/blob-removed.event.js';
import { FileService } from '../file/file.service.js';
import { UploadService } from '../file/upload.service.js';
import { deliveriesOf, type PublishedEvent } from './tally.js';

/** Every so manieth event is the removal of a blob, every so manieth mail goes to a greylisted address. */
const blobEvery = 20;
const greylistedEvery = 25;
/** With every so manieth somebody signs in, or brings old audit lines along. */
const signInEvery = 5;
const importEvery = 10;
const importedLines = 25;
/** The invoice whose mail nobody takes: its dead letter is part of the show. */
const poison = 4;

/** Plays the users of all tenants, through the same services as the HTTP requests; what they leave behind is the jobs'. */
export class Feeder {
  private readonly billing: BillingService;
  private readonly files: FileService;
  private readonly uploads: UploadService;
  private readonly sessions: SessionService;
  private readonly audit: AuditService;

  constructor(app: INestApplicationContext) {
    this.billing = app.get(BillingService);
    this.files = app.get(FileService);
    this.uploads = app.get(UploadService);
    this.sessions = app.get(SessionService);
    this.audit = app.get(AuditService);
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
    if (n % signInEvery === 0) await this.sessions.open(tenant);
    if (n % importEvery === 0) await this.audit.import(tenant, oldLines());
    if (type === blobRemoved) {
      // Somebody closes the window before the upload has a name.
      await this.uploads.begin(`scan ${n}, half of it`);
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

function oldLines(): { createdAt: Date; line: string }[] {
  return Array.from({ length: importedLines }, (_, i) => ({ createdAt: new Date('2020-01-01'), line: `line ${i}` }));
}
