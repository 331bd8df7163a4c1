import { pick, Random } from './random.js';

export const workers = 3;
export const publishers = 2;

/** As short as it may be: a paused worker's messages are given to others while it still has them. */
export const ackWaitMs = 1_000;

export const transports = ['postgres', 'jetstream'] as const;
export type SoakTransport = (typeof transports)[number];

/** Whose sessions are ended, by application name: the library's own, and the pools of the app. */
export const applications = [
  'nestjs-outbox relay',
  'nestjs-outbox worker',
  'nestjs-outbox worker lock',
  'nestjs-outbox jobs',
  'nestjs-outbox wake',
  'nestjs-outbox publisher',
  'soak worker',
  'soak publisher',
] as const;

export type Fault = { readonly atMs: number } & (
  | { readonly kind: 'kill'; readonly worker: number }
  | { readonly kind: 'pause'; readonly process: number; readonly forMs: number }
  /** `which` of the sessions that there are then, from 0 to 1; and how many. */
  | { readonly kind: 'terminate'; readonly application: string; readonly which: number; readonly sessions: number }
  | { readonly kind: 'restart'; readonly how: 'fast' | 'immediate'; readonly downMs: number }
  | { readonly kind: 'broker'; readonly how: BrokerFault; readonly downMs: number }
);

/** Ended in order, ended at once, the same and all that it held is gone, or frozen. */
export const brokerFaults = ['stop', 'kill', 'wipe', 'freeze'] as const;
export type BrokerFault = (typeof brokerFaults)[number];

type Card = 'kill' | 'pause' | 'terminate' | 'fast' | 'immediate' | `broker ${BrokerFault}`;

/** One of each, so that a short run meets all of them; afterwards what is cheap comes more often. */
const firstDeck: readonly Card[] = ['kill', 'pause', 'terminate', 'fast', 'immediate'];
const brokerCards = brokerFaults.map((how) => `broker ${how}` as const);
const deck: readonly Card[] = [
  ...Array<Card>(5).fill('kill'),
  ...Array<Card>(3).fill('pause'),
  ...Array<Card>(6).fill('terminate'),
  'fast',
  'immediate',
];

/** The first fault comes with work under way. */
const headStartMs = 1_500;
const meanGapMs = 2_500;
const leastGapMs = 300;

/** What happens when, from the seed alone. */
export function faultPlan(seed: number, forMs: number, transport: SoakTransport = 'postgres'): Fault[] {
  const more = transport === 'jetstream' ? [...brokerCards, 'broker kill' as const] : [];
  const random = new Random(seed);
  const faults: Fault[] = [];
  let cards = random.shuffled([...firstDeck, ...more]);
  for (let atMs = headStartMs; atMs < forMs; atMs += gap(random)) {
    if (cards.length === 0) cards = random.shuffled([...deck, ...more]);
    const card = cards.pop();
    if (card) faults.push({ atMs: Math.round(atMs), ...fault(card, random) } as Fault);
  }
  return faults;
}

function gap(random: Random): number {
  return Math.min(6 * meanGapMs, leastGapMs - Math.log(1 - random.next()) * (meanGapMs - leastGapMs));
}

function fault(card: Card, random: Random) {
  switch (card) {
    case 'kill':
      return { kind: 'kill', worker: Math.floor(random.next() * workers) };
    case 'pause':
      return {
        kind: 'pause',
        process: Math.floor(random.next() * (workers + publishers)),
        forMs: Math.round(random.between(200, 8_000)),
      };
    case 'terminate':
      return {
        kind: 'terminate',
        application: pick(applications, random.next()) ?? '',
        which: random.next(),
        sessions: 1 + Math.floor(random.next() * 3),
      };
    case 'fast':
    case 'immediate':
      return { kind: 'restart', how: card, downMs: Math.round(random.between(0, 2_000)) };
    default:
      // Long enough that others die and pause meanwhile, and that clients notice one that is frozen.
      return {
        kind: 'broker',
        how: brokerFaults.find((how) => card.endsWith(how)),
        downMs: Math.round(random.between(0, card === 'broker freeze' ? 15_000 : 5_000)),
      };
  }
}
