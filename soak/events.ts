import { Random, seedOf } from './random.js';

export const orderPlaced = 'soak.order.placed';
/** Published by the handler of an order, in its transaction. */
export const orderBooked = 'soak.order.booked';
export const tickJob = 'soak.tick';

/** Who is to handle what: the tally expects one effect, or one dead letter of a poisonous event, for each. */
export const subscriptions = [
  { type: orderPlaced, durable: 'ledger' },
  { type: orderPlaced, durable: 'mail' },
  { type: orderBooked, durable: 'mail' },
] as const;

/** The durable that fails when an event asks for it. */
export const failing = 'mail';

/** What an event asks of its handlers. */
export type How = 'plain' | 'slow' | 'fails' | 'hangs' | 'poison' | 'follow';

export interface Order {
  readonly n: number;
  readonly how: How;
  /** How long a slow handler takes. */
  readonly ms: number;
  /** It is published with this unique key; absent where a handler published it. */
  readonly key?: string;
}

const shares: readonly (readonly [How, number])[] = [
  ['fails', 0.05],
  ['slow', 0.04],
  ['follow', 0.1],
  ['poison', 0.01],
  ['hangs', 0.002],
];

/** What belongs to nobody is as good as a third tenant. */
export const tenants = ['acme', 'globex', null] as const;

export const keyOf = (publisher: number, n: number): string => `order:${publisher}:${n}`;
export const subjectOf = (n: number): string => `customer:${n % 100}`;
export const tenantOf = (n: number): string | null => tenants[n % tenants.length] ?? null;

/** The n-th order of a publisher; the same in every run with the seed. */
export function orderOf(seed: number, publisher: number, n: number): Order {
  const random = new Random(seedOf(seed, publisher, n));
  let at = random.next();
  const how = shares.find(([, share]) => {
    at -= share;
    return at < 0;
  })?.[0];
  return { n, how: how ?? 'plain', ms: Math.round(random.between(200, 1_500)) };
}
