import assert from 'node:assert/strict';
import type { DeliveryContext } from '../../consume/delivery-context.js';
import type { SubscribeOptions } from '../../consume/subscribe.decorator.js';
import type { OutboxEvent } from '../../core/envelope.js';
import type { EventPublisher, Published, PublishOptions } from '../../events/event-publisher.js';
import type { DeliveryInfo, DeliveryState } from '../../inspect/delivery-info.js';
import { deliveryStates } from '../../inspect/delivery-info.js';
import type { OutboxInspector } from '../../inspect/inspector.js';
import type { JobContext } from '../../jobs/job-context.js';
import { type ProbeApp, type ProbeJob, type ProbeSubscription, until } from '../probe-app.js';
import type { ProbeSite, SiteAppOptions } from '../probe-site.js';
import { Gate } from './gate.js';

export type Handle = (event: OutboxEvent<Payload>, context: DeliveryContext, app: string) => unknown;

export interface Payload {
  readonly n?: number;
}

/** What a test wants to be there when its group's apps boot. All names are the test's own, see `Stage`. */
export interface Plan {
  /** Durables, each for all types of the test unless `types` names some. Default: one, called `one`. */
  readonly durables?: Readonly<Record<string, SubscribeOptions & { readonly types?: readonly string[] }>>;
  /** Last tokens of the types that it publishes. Default: `asked`. */
  readonly types?: readonly string[];
  readonly jobs?: Readonly<Record<string, Omit<ProbeJob, 'name' | 'run'>>>;
  /** Before a worker has ever booted on this database. */
  readonly early?: (stage: Stage) => Promise<void>;
}

/** One run of a handler that has begun, committed or not. */
export interface Run {
  readonly eventId: string;
  readonly durable: string;
  readonly attempt: number;
  readonly app: string;
}

export interface JobRun {
  readonly slot: Date;
  readonly attempt: number;
  readonly app: string;
}

/** What waits by design is made short; nothing is promised about it. */
export const relay = { poll: '200ms', reconcile: '1s' } as const;

/** One test: names that no other test has, what its handlers do, and what they did. */
export class Stage {
  /** Runs of its handlers, in the order in which they began, on whatever app. */
  readonly runs: Run[] = [];
  readonly jobRuns: JobRun[] = [];
  private handler: Handle = () => {};
  private worker: (context: JobContext, app: string) => unknown = () => {};
  private probe: ProbeApp | undefined;
  private readonly gates: Gate[] = [];

  constructor(
    readonly site: ProbeSite,
    private readonly name: string,
    readonly plan: Plan,
  ) {}

  /** The app through which it publishes and looks. */
  on(app: ProbeApp): this {
    this.probe = app;
    return this;
  }

  get app(): ProbeApp {
    if (!this.probe) throw new Error('no app has booted');
    return this.probe;
  }

  get publisher(): EventPublisher {
    return this.app.publisher;
  }

  get inspector(): OutboxInspector {
    return this.app.inspector;
  }

  type(verb = 'asked'): string {
    return `contract.${this.name}.${verb}`;
  }

  get types(): string[] {
    return (this.plan.types ?? ['asked']).map((verb) => this.type(verb));
  }

  durable(name = 'one'): string {
    return `${this.name}-${name}`;
  }

  /** As the test calls it. */
  short(durable: string | null): string {
    return durable?.replace(`${this.name}-`, '') ?? '-';
  }

  get durables(): string[] {
    return Object.keys(this.plan.durables ?? { one: {} }).map((name) => this.durable(name));
  }

  job(name: string): string {
    return `${this.name}.${name}`;
  }

  /** For one app: what a handler does is the test's, `handle`. */
  subscriptions(app: string): ProbeSubscription[] {
    return Object.entries(this.plan.durables ?? { one: {} }).map(([name, { types, ...options }]) => ({
      types: types?.map((verb) => this.type(verb)) ?? this.types,
      durable: this.durable(name),
      options: { backoff: ['200ms'], ...options },
      handle: async (event, context) => {
        this.runs.push({ eventId: event.id, durable: context.durable, attempt: context.attempt, app });
        await this.handler(event as OutboxEvent<Payload>, context, app);
      },
    }));
  }

  jobs(app: string): ProbeJob[] {
    return Object.entries(this.plan.jobs ?? {}).map(([name, job]) => ({
      ...job,
      name: this.job(name),
      run: async (context) => {
        this.jobRuns.push({ slot: context.slot, attempt: context.attempt, app });
        await this.worker(context, app);
      },
    }));
  }

  /** An app of the test's own, with its durables. */
  boot(app: string, options: Partial<SiteAppOptions> = {}): Promise<ProbeApp> {
    const { types } = this;
    return this.site.app(app, { durables: [], types, relay, subscriptions: this.subscriptions(app), ...options });
  }

  handle(handler: Handle): void {
    this.handler = handler;
  }

  work(worker: (context: JobContext, app: string) => unknown): void {
    this.worker = worker;
  }

  /** Where a handler waits for the test. It is open at the end of the test, whatever happened. */
  gate(): Gate {
    const gate = new Gate();
    this.gates.push(gate);
    return gate;
  }

  async play(body: (stage: Stage) => Promise<void>): Promise<void> {
    // A runner may play a test that failed once more.
    this.runs.length = 0;
    this.jobRuns.length = 0;
    try {
      await body(this);
    } finally {
      this.handler = () => {};
      this.worker = () => {};
      for (const gate of this.gates.splice(0)) gate.open();
    }
  }

  /** In a transaction of its own. */
  async publish(n = 1, options: PublishOptions & { tenantId?: string; verb?: string } = {}): Promise<string> {
    return (await this.offer(n, options)).id;
  }

  offer(n = 1, { verb, ...options }: PublishOptions & { tenantId?: string; verb?: string } = {}): Promise<Published> {
    return this.publisher.publishNow(this.type(verb), { n }, options);
  }

  /** As a publisher cancels: in a transaction. */
  cancel(query: CancelQuery): Promise<Cancelled> {
    return this.app.dataSource.transaction(() => this.publisher.cancel(query));
  }

  /** The state of each delivery of an event, as the public view has it. */
  async states(eventId: string): Promise<Record<string, DeliveryState>> {
    return Object.fromEntries((await this.viewed([eventId])).map(({ durable, state }) => [durable, state]));
  }

  private async viewed(eventIds: readonly string[]) {
    const rows = await this.site.rows<{ id: string; durable: string | null; state: DeliveryState }>(
      'SELECT event_id AS id, durable, state FROM outbox.deliveries_state WHERE event_id = ANY ($1::uuid[])',
      [eventIds],
    );
    const names = new Set(rows.map(({ id, durable }) => `${id} ${durable}`));
    assert.equal(names.size, rows.length, `the view has a delivery twice: ${JSON.stringify(rows)}`);
    return rows.map(({ id, durable, state }) => ({ id, state, durable: this.short(durable) }));
  }

  /** Waits until the public view says so. */
  async reaches(eventId: string, state: DeliveryState, durable = 'one'): Promise<void> {
    let seen: unknown;
    const look = async (): Promise<boolean> => {
      const states = await this.states(eventId);
      seen = states;
      return states[durable] === state;
    };
    await until(`${durable} ${state}`, look).catch((error: Error) => {
      throw new Error(`${error.message}; last seen: ${JSON.stringify(seen)}`);
    });
  }

  /** Waits until each of its durables has handled each of the events. */
  async handled(...eventIds: string[]): Promise<void> {
    const all = eventIds.length * this.durables.length;
    let seen: unknown;
    const look = async (): Promise<boolean> => {
      const rows = await this.viewed(eventIds);
      seen = rows.filter(({ state }) => state !== 'completed');
      return rows.filter(({ state }) => state === 'completed').length === all;
    };
    await until(`${all} deliveries completed`, look).catch((error: Error) => {
      throw new Error(`${error.message}; others: ${JSON.stringify(seen)}`);
    });
  }

  runsOf(eventId: string): Run[] {
    return this.runs.filter((run) => run.eventId === eventId);
  }

  /** Its delivery to one durable, as the inspector lists it. */
  async delivery(eventId: string, durable = 'one'): Promise<DeliveryInfo> {
    const { deliveries } = await this.inspector.list({
      eventId,
      durable: this.durable(durable),
      state: deliveryStates,
    });
    assert.equal(deliveries.length, 1, `of ${durable} there are ${deliveries.length} deliveries`);
    return deliveries[0] as DeliveryInfo;
  }

  /** Waits until it is parked under a pause: somebody took it, and may not run it. */
  async parked(eventId: string, durable = 'one'): Promise<void> {
    await until(`${durable} is parked`, async () => (await this.delivery(eventId, durable)).pause !== null);
  }

  /** Waits until it is on its way to the handlers, and not with the relay any more. */
  async forwarded(eventId: string): Promise<void> {
    await until('it is forwarded', async () => (await this.inspector.get(eventId))?.relay.state === 'forwarded');
  }

  /** The database's clock, which is the only one. */
  async now(): Promise<Date> {
    const [row] = await this.site.rows<{ at: Date }>('SELECT clock_timestamp() AS at');
    return row?.at ?? new Date(Number.NaN);
  }
}

export type CancelQuery = Parameters<OutboxInspector['cancel']>[0];
export type Cancelled = Awaited<ReturnType<OutboxInspector['cancel']>>;
