export const subscriptionRenewed = 'billing.subscription.renewed';

export interface SubscriptionRenewed {
  readonly subscriptionId: string;
  readonly cents: number;
}
