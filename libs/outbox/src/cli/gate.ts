import type { DataSource } from 'typeorm';
import type { BootContext, GraphContext } from '../boot/boot-check.js';
import { checkDatabase } from '../boot/boot-gate.js';
import { checkGraph } from '../boot/graph-checks.js';
import { SubscriptionRegistry } from '../consume/subscription.registry.js';
import { KnownEvents } from '../events/known-events.js';
import type { BootProblem, OutboxRole } from '../index.js';
import { JobRegistry } from '../jobs/job.registry.js';
import { OutboxSettings } from '../outbox.options.js';
import { Database } from '../tables/database.js';
import { inGraph } from '../testing/check-outbox.js';
import { postgres } from '../transports/postgres/postgres.transport.js';
import { loadModule } from './load-module.js';

/** What the gate would say. */
export interface GateReport {
  readonly problems: readonly BootProblem[];
  readonly warnings: readonly string[];
  /** What was looked at. */
  readonly checked: readonly ('app' | 'database')[];
}

export interface GateInput {
  /** The compiled module; without it only the database is looked at. */
  readonly module: string | undefined;
  readonly role: OutboxRole | undefined;
  readonly schema: string | undefined;
  /** Opens the database; without it only the module is looked at. */
  readonly connect: (() => Promise<DataSource>) | undefined;
}

/** The boot gate without a boot: nothing is instantiated, registered, or changed. */
export async function throughGate({ module, role, schema, connect }: GateInput): Promise<GateReport> {
  const graph = module === undefined ? bare(role ?? 'worker') : await graphOf(module);
  const warnings = new Set<string>();
  const warn = (message: string): unknown => warnings.add(message);
  const problems = 'length' in graph ? graph : await checkGraph(graph, warn);
  if ('length' in graph || problems.length > 0 || !connect)
    return { problems, warnings: [...warnings], checked: ['app'] };
  const context = contextOf(graph, await connect(), role, schema);
  // Without the app every durable would be one that it does not know.
  const found = await checkDatabase(context, warn, { without: module === undefined ? ['durables'] : [] });
  const checked = module === undefined ? (['database'] as const) : (['app', 'database'] as const);
  return { problems: found, warnings: [...warnings], checked };
}

async function graphOf(module: string): Promise<GraphContext | readonly BootProblem[]> {
  return inGraph(await loadModule(module), async (graph) => graph);
}

function bare(role: OutboxRole): GraphContext {
  const settings = new OutboxSettings({ role }, postgres());
  return {
    settings,
    catalog: new KnownEvents(),
    registry: new SubscriptionRegistry(),
    jobs: new JobRegistry(),
    roots: 1,
  };
}

/** `migrate` at start is for the app: a check changes nothing. */
function contextOf(
  graph: GraphContext,
  dataSource: DataSource,
  role: OutboxRole | undefined,
  schema: string | undefined,
): BootContext {
  const { settings } = graph;
  const name = schema ?? settings.schema;
  return {
    ...graph,
    settings: { ...settings, schema: name, role: role ?? settings.role, onStart: 'verify' },
    dataSource,
    database: new Database(dataSource, name, settings.infrastructureUrl),
  };
}
