import { setTimeout as pause } from 'node:timers/promises';
import type { BrokerMessage, Delivery } from '../core/envelope.js';
import { errorText } from '../core/error-text.js';
import { type Log, ThrottledLog } from '../core/throttled-log.js';
import type { DeliveryReceiver, IncomingMessage } from '../core/transport.js';
import type { WakeSignal } from '../core/wake-signal.js';
import type { WorkerIdentity } from '../core/worker-identity.js';
import type { DeliveryHandler, Handling } from './delivery-handler.js';
import type { Outcome } from './handling.js';
import type { Lane } from './lane.js';
import { Lanes } from './lanes.js';
import type { LateRecorder } from './late-recorder.js';
import type { MessageIntake } from './message-intake.js';
import type { Subscription } from './subscription.js';

/**
 * Rows of a durable that this process holds at most while it is the only worker. Fetching twice the free slots instead
 * costs 17 to 22 % (each further row is updated once more), and is what is done when others could work on them.
 */
const aloneRoom = 300;

/** Outcomes that are recorded by and by. */
const later: ReadonlySet<Outcome> = new Set<Outcome>(['postponed', 'interrupted', 'uncharged']);

/** After an abandoned handler's connection was ended, this long for its promise to settle. */
const abandonMs = 1_000;
/** Handing back at a stop may take this long. */
const handBackMs = 2_000;

/**
 * Starts handlers: takes deliveries from the transport and the taker, keeps them in a lane per durable, and runs as
 * many at once as the process has slots, the lanes in turn. It decides how much more may come; it never asks for it.
 *
 *   open ⇄ quiet (one delivery runs alone) ── stopTaking ──▶ draining ──▶ drained
 */
export class ConsumerService implements DeliveryReceiver {
  private readonly lanes = new Lanes();
  private readonly underway = new Map<Handling, Delivery>();
  private readonly begun = new WeakMap<Handling, number>();
  private readonly throttled: ThrottledLog;
  private slots = 1;
  private state: 'open' | 'quiet' | 'stopped' = 'open';
  private readonly idleWaiters = new Set<() => void>();
  private readonly stopped = new AbortController();
  private roomListener: (() => void) | undefined;

  constructor(
    private readonly handler: DeliveryHandler,
    private readonly recorder: LateRecorder,
    private readonly identity: WorkerIdentity,
    private readonly taker: WakeSignal,
    private readonly intake: MessageIntake,
    /** First deliveries are a broker's messages: what is fetched and not started is kept from everybody else's reach. */
    private readonly brokered: boolean,
    log: Log,
  ) {
    this.throttled = new ThrottledLog(log);
    // What was fetched under a lost number is freed by whoever takes its leases back.
    identity.onLost(() => this.dropWaiting());
  }

  /** Called once, with the numbers that the registration gave to the durables. */
  open(durables: ReadonlyMap<number, Subscription>, slots: number): void {
    this.slots = slots;
    this.lanes.open(durables);
  }

  get durables(): readonly number[] {
    return this.lanes.durables;
  }

  get running(): number {
    return this.underway.size;
  }

  /** What the views call running: event id, durable, milliseconds since it began. */
  get inFlight(): readonly (readonly [string, number, number])[] {
    const now = performance.now();
    return [...this.underway].map(([handling, { eventId, durable }]) => [
      eventId,
      durable,
      Math.round(now - (this.begun.get(handling) ?? now)),
    ]);
  }

  /** What is leased to this process and has not begun: durables, and how many. */
  get leased(): readonly (readonly [number, number])[] {
    return this.lanes.leased;
  }

  room(): ReadonlyMap<number, number> {
    const open = this.state === 'open' && this.identity.number !== undefined;
    return this.lanes.room((lane) => (open ? this.laneRoom(lane) : 0));
  }

  onRoom(listener: () => void): void {
    this.roomListener = listener;
  }

  /** What is leased to this process as far as it knows. */
  get held(): readonly Delivery[] {
    return [...this.lanes.waiting, ...this.underway.values()];
  }

  /** Somebody cancelled the event, too late for these handlers, and wants them to end. */
  cancel(eventId: string): void {
    for (const [handling, delivery] of this.underway) if (delivery.eventId === eventId) handling.cancel();
  }

  receive(deliveries: readonly Delivery[]): void {
    if (this.state !== 'open') {
      void this.recorder.giveBack(deliveries);
      return;
    }
    for (const delivery of deliveries) this.lanes.of(delivery.durable)?.waiting.push(delivery);
    this.pump();
  }

  receiveMessages(messages: readonly IncomingMessage[]): void {
    const handles = ({ durable, type }: IncomingMessage): boolean =>
      this.lanes.of(durable)?.subscription.covers(type) ?? false;
    this.lanes.arriving(messages, 1);
    const answered = (some: readonly IncomingMessage[]): void => {
      this.lanes.arriving(some, -1);
      this.pump();
    };
    void this.intake.take(messages, handles, answered).then((deliveries) => {
      this.lanes.arriving(deliveries, -1);
      this.receive(deliveries);
    });
  }

  handBack(messages: ReadonlySet<BrokerMessage>): void {
    void this.recorder.giveBack(this.lanes.giveUp(messages));
  }

  /** The taker got as much as it could ask for of these durables: it wants to know when there is room again. */
  expectMore(durables: Iterable<number>): void {
    this.lanes.expectMore(durables);
    this.askForMore();
  }

  /**
   * Runs what `fetch` brings with nothing else leased to this process: what was fetched is handed back first, and what
   * runs is waited for. So a crash in the meantime is charged to that one delivery and to no neighbour. Resolves to
   * false when the process did not become quiet within `limitMs`. Ends with the verdict: a method that was cut off and
   * never ends keeps its slot, and no more. A stop is waited for by nobody here; what runs is the drain's.
   */
  async alone(limitMs: number, fetch: () => Promise<Delivery | undefined>): Promise<boolean> {
    if (this.state !== 'open') return false;
    this.state = 'quiet';
    try {
      await this.recorder.giveBack(this.lanes.withdraw());
      if (!(await this.whenIdle(limitMs)) || this.stopped.signal.aborted) return false;
      const delivery = await fetch();
      const lane = delivery && this.lanes.of(delivery.durable);
      if (!delivery || !lane) return true;
      // A stop came meanwhile: what was fetched is handed back by the end of this worker.
      if (this.stopped.signal.aborted) return false;
      await this.orStopped(this.start(lane, delivery));
      return true;
    } finally {
      this.reopen();
    }
  }

  /** Nothing more is started; what was fetched and not started is handed back, uncharged. */
  async stopTaking(): Promise<void> {
    this.state = 'stopped';
    this.stopped.abort();
    // Only one that is to run alone may wait now, and not to the end of its limit.
    for (const done of this.idleWaiters) done();
    // When the database is gone they stay leased; the end of this worker frees them.
    await Promise.race([this.recorder.giveBack(this.lanes.withdraw()), pause(handBackMs, undefined, { ref: false })]);
  }

  /** Waits for the running handlers, at most `limitMs`; then ends their connections, uncharged. */
  async drain(limitMs: number): Promise<void> {
    if (await this.whenIdle(limitMs)) return;
    this.throttled.warn(
      'drain',
      `stopping: ${this.underway.size} handlers did not end within ${limitMs} ms; their connections are ended and their deliveries run elsewhere`,
    );
    for (const handling of this.underway.keys()) handling.abandon(new Error('the process is stopping'));
    await this.whenIdle(abandonMs);
  }

  private laneRoom(lane: Lane): number {
    const slots = Math.min(this.slots, lane.subscription.concurrency ?? this.slots);
    const most = this.brokered ? 4 * slots : this.identity.others === 0 ? Math.max(aloneRoom, 2 * slots) : 2 * slots;
    return Math.max(0, most - lane.waiting.length - lane.running - lane.arriving);
  }

  private pump(): void {
    while (this.state === 'open' && this.underway.size < this.slots) {
      const lane = this.lanes.next();
      const delivery = lane?.waiting.shift();
      if (!lane || !delivery) break;
      void this.start(lane, delivery);
    }
    this.askForMore();
  }

  /** Resolves when the delivery has its verdict. */
  private start(lane: Lane, delivery: Delivery): Promise<void> {
    const handling = this.handler.handle(delivery, lane.subscription, () => this.state === 'stopped');
    lane.running += 1;
    this.underway.set(handling, delivery);
    this.begun.set(handling, performance.now());
    const verdict = this.verdict(delivery, handling);
    void this.finish(lane, handling, verdict);
    return verdict;
  }

  private async verdict(delivery: Delivery, handling: Handling): Promise<void> {
    try {
      const outcome = await handling.outcome;
      // The others are acknowledged when what came of them is recorded, which may take longer than the outcome.
      if (!later.has(outcome)) delivery.message?.ack();
      // Not in the handler's own transaction: two handlers of one event would wait for each other there.
      if (outcome === 'cancelled') void this.recorder.cancelled(delivery.eventId);
    } catch (error) {
      this.throttled.error('handle', `handling event ${delivery.eventId} failed in the library: ${errorText(error)}`);
      await this.recorder.interrupted(delivery);
    }
  }

  private async finish(lane: Lane, handling: Handling, verdict: Promise<void>): Promise<void> {
    await verdict;
    // A method that ignores its signal keeps its slot until it ends: starting another would run two in one slot.
    await handling.ended();
    lane.running -= 1;
    this.lanes.freed();
    this.underway.delete(handling);
    if (this.underway.size === 0) for (const done of this.idleWaiters) done();
    this.pump();
  }

  private askForMore(): void {
    if (this.state !== 'open') return;
    this.roomListener?.();
    if (this.lanes.takesMore((lane) => this.laneRoom(lane))) this.taker.nudge();
  }

  private async whenIdle(limitMs: number): Promise<boolean> {
    if (this.underway.size === 0) return true;
    let timer: NodeJS.Timeout | undefined;
    let done: (() => void) | undefined;
    const idle = new Promise<boolean>((resolve) => {
      done = () => resolve(true);
      this.idleWaiters.add(done);
      if (Number.isFinite(limitMs)) timer = setTimeout(() => resolve(false), limitMs);
    });
    try {
      return await idle;
    } finally {
      clearTimeout(timer);
      if (done) this.idleWaiters.delete(done);
    }
  }

  /** Until `work` is done, or the process stops. */
  private orStopped(work: Promise<void>): Promise<void> {
    const { signal } = this.stopped;
    return new Promise((resolve) => {
      const done = (): void => {
        signal.removeEventListener('abort', done);
        resolve();
      };
      signal.addEventListener('abort', done);
      void work.then(done);
    });
  }

  private reopen(): void {
    if (this.state !== 'quiet') return;
    this.state = 'open';
    this.expectMore(this.lanes.durables);
    this.pump();
  }

  private dropWaiting(): void {
    // Messages were never leased under any number.
    this.lanes.withdraw(({ message }) => !message);
    this.lanes.expectMore(this.lanes.durables);
  }
}
