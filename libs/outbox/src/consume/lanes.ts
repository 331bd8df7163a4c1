import type { BrokerMessage, Delivery } from '../core/envelope.js';
import { Lane } from './lane.js';
import type { Subscription } from './subscription.js';

/** The lanes of a process, one for each durable, and which of them would take more. */
export class Lanes {
  private readonly all = new Map<number, Lane>();
  private turn = 0;
  /**
   * Durables of which more rows may wait than there was room for: the taker is nudged when one of them has room. Those
   * without a backlog must not answer for them: they always have room, and would use the nudge up.
   */
  private readonly hungry = new Set<number>();

  open(durables: ReadonlyMap<number, Subscription>): void {
    for (const [id, subscription] of durables) this.all.set(id, new Lane(id, subscription));
  }

  of(durable: number): Lane | undefined {
    return this.all.get(durable);
  }

  get durables(): readonly number[] {
    return [...this.all.keys()];
  }

  /** Durables and how many rows of each wait here. A broker's messages are no rows: the views count them by themselves. */
  get leased(): readonly (readonly [number, number])[] {
    const rows = ({ waiting }: Lane): number => waiting.filter(({ message }) => message === undefined).length;
    return [...this.all].map(([durable, lane]) => [durable, rows(lane)] as const).filter(([, count]) => count > 0);
  }

  get waiting(): readonly Delivery[] {
    return [...this.all.values()].flatMap((lane) => lane.waiting);
  }

  arriving(some: readonly { readonly durable: number }[], by: 1 | -1): void {
    for (const { durable } of some) {
      const lane = this.all.get(durable);
      if (lane) lane.arriving += by;
    }
  }

  /** How much more may come, of each durable. */
  room(roomOf: (lane: Lane) => number): ReadonlyMap<number, number> {
    return new Map([...this.all.values()].map((lane) => [lane.durable, lane.stuck ? 0 : roomOf(lane)]));
  }

  /** Lanes in turn, so that a durable with a backlog leaves slots to the others. */
  next(): Lane | undefined {
    const lanes = [...this.all.values()];
    for (let i = 0; i < lanes.length; i++) {
      const lane = lanes[(this.turn + i) % lanes.length];
      if (!lane?.canStart) continue;
      this.turn = (this.turn + i + 1) % lanes.length;
      return lane;
    }
    return undefined;
  }

  /** Takes out what waits and answers to `which`. */
  withdraw(which: (delivery: Delivery) => boolean = () => true): Delivery[] {
    return [...this.all.values()].flatMap((lane) => lane.withdraw(which));
  }

  /** Takes out messages that waited in vain. */
  giveUp(messages: ReadonlySet<BrokerMessage>): Delivery[] {
    return [...this.all.values()].flatMap((lane) => {
      const waited = lane.withdraw(({ message }) => !!message && messages.has(message));
      lane.stuck ||= waited.length > 0;
      return waited;
    });
  }

  /** A slot is free again. */
  freed(): void {
    for (const lane of this.all.values()) lane.stuck &&= lane.full;
  }

  expectMore(durables: Iterable<number>): void {
    for (const durable of durables) this.hungry.add(durable);
  }

  /** Whether one that expects more has room for it; if so, none expects it any longer. */
  takesMore(roomOf: (lane: Lane) => number): boolean {
    const hungry = [...this.all.values()].filter((lane) => !lane.stuck && this.hungry.has(lane.durable));
    // Without any room a nudged taker would find nothing to do but to expect more, and be nudged again, for ever.
    if (!hungry.some((lane) => roomOf(lane) > 0 && lane.waiting.length <= roomOf(lane))) return false;
    this.hungry.clear();
    return true;
  }
}
