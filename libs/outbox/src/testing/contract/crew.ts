import type { TransportCapabilities, TransportFactory } from '../../core/transport.js';
import type { ProbeApp } from '../probe-app.js';
import { ProbeSite, slowMs, type TestApi, type TransportSetup } from '../probe-site.js';
import { type Plan, relay, Stage } from './stage.js';

/** Of the runner, beside what `describeTransport` needs: tests share a database and its apps. */
export interface QueueTestApi extends TestApi {
  beforeAll(body: () => Promise<void>, timeoutMs?: number): void;
  afterAll(body: () => Promise<void>, timeoutMs?: number): void;
}

export interface Contract {
  readonly api: QueueTestApi;
  readonly capabilities: TransportCapabilities;
  readonly makeTransport: (run: string) => TransportFactory;
  readonly setup: TransportSetup;
}

type Body = (stage: Stage) => Promise<void>;

export interface GroupTest {
  (what: string, body: Body): void;
  (what: string, plan: Plan, body: Body): void;
}

/**
 * A database and the apps on it, booted once for all tests of some groups. The tests do not meet: each has types,
 * durables and jobs of its own.
 */
export class Crew {
  private readonly site: ProbeSite;
  private readonly stages: Stage[] = [];

  constructor(
    private readonly contract: Contract,
    private readonly apps: readonly string[] = ['a'],
  ) {
    this.site = new ProbeSite(contract.makeTransport, contract.setup);
  }

  /** Called within a `describe`, before or after its groups. */
  hooks(): void {
    const { api } = this.contract;
    api.beforeAll(async () => {
      await this.site.open();
      await this.boot();
    }, slowMs);
    api.afterAll(() => this.site.close(), slowMs);
  }

  group(name: string, tests: (test: GroupTest) => void): void {
    const { api } = this.contract;
    api.describe(name, () => {
      tests((what: string, plan: Plan | Body, body?: Body) => {
        const [planned, played] = typeof plan === 'function' ? [{}, plan] : [plan, body];
        if (!played) throw new Error(`the test '${what}' has no body`);
        const stage = new Stage(this.site, `t${this.stages.length}`, planned);
        this.stages.push(stage);
        api.it(what, () => stage.play(played), slowMs);
      });
    });
  }

  private async boot(): Promise<void> {
    const { site, stages } = this;
    const types = stages.flatMap((stage) => stage.types);
    await this.early(types);
    const apps: ProbeApp[] = [];
    // One after the other: which boots first installs the schema.
    for (const name of this.apps) {
      const subscriptions = stages.flatMap((stage) => stage.subscriptions(name));
      const jobs = stages.flatMap((stage) => stage.jobs(name));
      apps.push(await site.app(name, { durables: [], types, subscriptions, jobs, relay }));
    }
    for (const stage of stages) if (apps[0]) stage.on(apps[0]);
  }

  private async early(types: readonly string[]): Promise<void> {
    const early = this.stages.filter(({ plan }) => plan.early);
    if (early.length === 0) return;
    const publisher = await this.site.app('early', { durables: [], role: 'publisher', types });
    for (const stage of early) await stage.plan.early?.(stage.on(publisher));
    await this.site.shut(publisher);
  }
}

/** A test whose apps come and go: they are its own, and so is the database. */
export function alone(
  { api, makeTransport, setup }: Contract,
  what: string,
  body: (site: ProbeSite, stage: Stage) => Promise<void>,
  plan: Plan = {},
): void {
  api.it(
    what,
    async () => {
      const site = new ProbeSite(makeTransport, setup);
      await site.open();
      const stage = new Stage(site, 'alone', plan);
      try {
        await stage.play(() => body(site, stage));
      } finally {
        await site.close();
      }
    },
    slowMs,
  );
}
