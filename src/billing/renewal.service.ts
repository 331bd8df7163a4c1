import { Injectable } from '@nestjs/common';
import { EventPublisher, PeriodicJob, type RowContext, type TenantJobContext } from 'nestjs-outbox';
import { LessThanOrEqual } from 'typeorm';
import { JobLog } from '../operations/job-log.js';
import { CardNetwork } from './card-network.js';
import { Renewal } from './renewal.entity.js';
import { Subscription } from './subscription.entity.js';
import { type SubscriptionRenewed, subscriptionRenewed } from './subscription-renewed.event.js';

@Injectable()
export class RenewalService {
  constructor(
    private readonly publisher: EventPublisher,
    private readonly cards: CardNetwork,
    private readonly log: JobLog,
  ) {}

  /**
   * Once for each tenant, in the tenant's transaction: the policies hold, and a tenant that fails stops no other. Within
   * a tenant `ctx.each` does the same for subscriptions: those behind a card that is declined are renewed all the same.
   *
   * Every two seconds for the demo's sake; '0 3 * * *' with a `timeZone` in a real app.
   */
  @PeriodicJob('*/2 * * * * *', { name: 'billing.renew', perTenant: { concurrency: 2 } })
  renew(ctx: TenantJobContext): Promise<void> {
    return this.log.keep(ctx, async () => {
      const dueAt = LessThanOrEqual(ctx.slot);
      const due = await ctx.manager.find(Subscription, { where: { dueAt }, order: { plan: 'ASC' } });
      await ctx.each(due, (subscription, row) => this.renewOne(subscription, ctx.slot, row));
      return due.length;
    });
  }

  /**
   * In a transaction of its own, with its event. It may be committed when the process dies before the tenant's is, and the
   * slot is then run again: so the row itself says whether it is still due. The card may be charged and the commit fail:
   * the key is the same whenever this slot is run.
   */
  private async renewOne({ id, cents, card, periodSeconds }: Subscription, slot: Date, row: RowContext): Promise<void> {
    const next = new Date(slot.getTime() + periodSeconds * 1_000);
    const { affected } = await row.manager.update(Subscription, { id, dueAt: LessThanOrEqual(slot) }, { dueAt: next });
    if (affected !== 1) return;
    await this.cards.charge({ card, cents, idempotencyKey: `${id} ${slot.toISOString()}` }, row.signal);
    await row.manager.insert(Renewal, { subscriptionId: id, slot, cents });
    const payload: SubscriptionRenewed = { subscriptionId: id, cents };
    await this.publisher.publish(subscriptionRenewed, payload, { subject: id });
  }
}
