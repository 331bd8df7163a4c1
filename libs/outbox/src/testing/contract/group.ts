import type { TransportCapabilities, TransportFactory } from '../../core/transport.js';
import type { ProbeApp } from '../probe-app.js';
import { ProbeSite, slowMs, type TestApi, type TransportSetup } from '../probe-site.js';
import { type Plan, relay, Stage } from './stage.js';

/** Of the runner, beside what `describeTransport` needs: tests of one group share a database and its apps. */
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

export interface GroupTest {
  (what: string, body: (stage: Stage) => Promise<void>): void;
  (what: string, plan: Plan, body: (stage: Stage) => Promise<void>): void;
}

interface Planned {
  readonly what: string;
  readonly stage: Stage;
  readonly body: (stage: Stage) => Promise<void>;
}

/** Tests that share a database and one app (or `apps` of them), and do not meet: each has types, durables and jobs of its own. */
export function group(contract: Contract, name: string, tests: (test: GroupTest) => void, apps = ['a']): void {
  const { api } = contract;
  api.describe(name, () => {
    const site = new ProbeSite(contract.makeTransport, contract.setup);
    const planned: Planned[] = [];
    tests((what, plan, body?: (stage: Stage) => Promise<void>) => {
      const own = typeof plan === 'function' ? { plan: {}, body: plan } : { plan, body };
      if (!own.body) throw new Error(`the test '${what}' has no body`);
      planned.push({
        what,
        body: own.body,
        stage: new Stage(site, `${name.replace(/\W/g, '-')}-${planned.length}`, own.plan),
      });
    });
    api.beforeAll(async () => {
      await site.open();
      await boot(
        site,
        planned.map(({ stage }) => stage),
        apps,
      );
    }, slowMs);
    api.afterAll(() => site.close(), slowMs);
    for (const { what, stage, body } of planned) api.it(what, () => stage.play(body), slowMs);
  });
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

async function boot(site: ProbeSite, stages: readonly Stage[], names: readonly string[]): Promise<void> {
  const types = stages.flatMap((stage) => stage.types);
  const early = stages.filter(({ plan }) => plan.early);
  if (early.length > 0) {
    const publisher = await site.app('early', { durables: [], role: 'publisher', types });
    for (const stage of early) {
      stage.on(publisher);
      await stage.plan.early?.(stage);
    }
    await site.shut(publisher);
  }
  const apps: ProbeApp[] = [];
  // One after the other: which boots first installs the schema.
  for (const name of names) {
    apps.push(
      await site.app(name, {
        durables: [],
        types,
        subscriptions: stages.flatMap((stage) => stage.subscriptions(name)),
        jobs: stages.flatMap((stage) => stage.jobs(name)),
        relay,
      }),
    );
  }
  const [app] = apps;
  if (app) for (const stage of stages) stage.on(app);
}
