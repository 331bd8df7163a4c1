/** Whoever talks to the outbox, by what it does there. */
export type Actor = 'publisher' | 'worker' | 'operator' | 'retrier';

/** What an actor needs on some objects of one kind; `columns` stands for both reading and writing them. */
export interface Privilege {
  readonly kind: 'TABLE' | 'FUNCTION' | 'SEQUENCE';
  readonly names: readonly string[];
  readonly privileges: readonly string[];
  /** The privileges hold for these columns alone. */
  readonly columns?: readonly string[];
  /** The schema version that brought the objects, or made them needed. Default 1. */
  readonly version?: number;
}

const table = (names: string | readonly string[], privileges: string, columns?: string): Privilege => ({
  kind: 'TABLE',
  names: [names].flat(),
  privileges: privileges.split(' '),
  ...(columns === undefined ? {} : { columns: columns.split(' ') }),
});
const call = (...names: string[]): Privilege => ({ kind: 'FUNCTION', names, privileges: ['EXECUTE'] });
const since = (version: number, ...needs: Privilege[]): Privilege[] => needs.map((need) => ({ ...need, version }));
/** A privilege on a partitioned table does not reach a statement that names one of its partitions. */
const ring = (name: string): string[] => Array.from({ length: 10 }, (_, bucket) => `${name}_${bucket}`);

const cancelling = call('cancel', 'cancel_unique', 'cancel_subject');
const event = 'tenant_id type subject payload headers unique_key';

/**
 * The privileges, by the statements in `../*.table.ts`. A publisher writes and reads nothing back: ids come out
 * of its own statement. The upsert of `unique_keys` has to read the standing key, which is a hash.
 */
const publisher: readonly Privilege[] = [
  table('schema_version', 'SELECT', 'version min_library'),
  call('uuid7', 'bucket'),
  table('events', 'INSERT', `bucket id ${event}`),
  table('queue', 'INSERT', 'event_id due_at'),
  table('scheduled', 'INSERT', `id due_at ${event}`),
  table('unique_keys', 'SELECT INSERT', 'tenant type key event_id expires_at'),
  table('unique_keys', 'UPDATE', 'event_id expires_at'),
  ...since(4, cancelling),
];

/** Relays, handles, runs jobs, forgets; publishes as well, since handlers do. UPDATE where it locks rows, too: FOR UPDATE asks for it. */
const worker: readonly Privilege[] = [
  table('schema_version', 'SELECT'),
  call('uuid7', 'uuid7_floor', 'bucket'),
  call(...ring('claim')),
  table('events', 'SELECT INSERT'),
  table(ring('events'), 'SELECT'),
  table('handled', 'SELECT DELETE'),
  table(ring('handled'), 'SELECT INSERT UPDATE DELETE'),
  table(ring('attempts'), 'SELECT INSERT'),
  table('queue', 'SELECT INSERT UPDATE DELETE'),
  table('scheduled', 'SELECT INSERT UPDATE DELETE'),
  table('deliveries', 'SELECT INSERT UPDATE DELETE'),
  table('dead_letters', 'SELECT INSERT UPDATE'),
  table('durables', 'SELECT INSERT UPDATE'),
  table('durable_types', 'SELECT INSERT UPDATE'),
  table('unique_keys', 'SELECT INSERT UPDATE'),
  table(['workers', 'lives'], 'SELECT INSERT UPDATE DELETE'),
  { kind: 'SEQUENCE', names: ['workers_id_seq'], privileges: ['USAGE'] },
  ...since(
    2,
    table(['job_state', 'job_runs', 'job_tenants'], 'SELECT INSERT UPDATE DELETE'),
    table(['unique_keys', 'dead_letters'], 'DELETE'),
    call('claim_tenant', 'forget_events', 'forget_marks'),
  ),
  ...since(3, call(...ring('claim_message'))),
  // Health looks up a few attempts of all days.
  ...since(4, table('pauses', 'SELECT UPDATE'), table('attempts', 'SELECT'), cancelling),
];

/** Reads everything, and changes nothing. */
const operator: readonly Privilege[] = [
  table(
    [
      ...['schema_version', 'durables', 'durable_types', 'events', 'handled', 'attempts', 'queue', 'scheduled'],
      ...['deliveries', 'dead_letters', 'unique_keys', 'workers', 'lives'],
    ],
    'SELECT',
  ),
  call('uuid7_floor', 'bucket'),
  ...since(2, table(['job_state', 'job_runs', 'job_tenants'], 'SELECT')),
  // The overview reads the ends of the days' tables.
  table(ring('handled'), 'SELECT'),
  ...since(4, table(['pauses', 'audit', 'pauses_active', 'deliveries_running', 'deliveries_state'], 'SELECT')),
];

/** Beside reading: all that `OutboxInspector`, `DeadLetters` and `Durables` do. */
const retrier: readonly Privilege[] = [
  ...operator,
  table('dead_letters', 'UPDATE', 'resolved_at resolution'),
  table('handled', 'DELETE'),
  table('deliveries', 'INSERT', 'event_id durable'),
  // Letters of the relay go back into the queue.
  ...since(3, table('queue', 'INSERT', 'event_id')),
  ...since(
    4,
    table('pauses', 'INSERT UPDATE'),
    table('audit', 'INSERT', 'who action what why'),
    table('deliveries', 'UPDATE', 'due_at lease'),
    table('deliveries', 'DELETE'),
    table('durables', 'UPDATE', 'state'),
    table('durable_types', 'UPDATE', 'since ended_at backfill_to'),
    table('job_state', 'UPDATE', 'asked_at asked_by retry_at'),
    cancelling,
    call('cancel_each'),
  ),
];

export const privilegesOf: Readonly<Record<Actor, readonly Privilege[]>> = { publisher, worker, operator, retrier };

/** The statements that give `role` what `needs` lists. The role's name may be anything; it is quoted. */
export function grantStatements(
  schema: string,
  role: string,
  needs: readonly Privilege[],
  version = Number.POSITIVE_INFINITY,
): string[] {
  const to = `TO ${quoted(role)}`;
  return [
    `GRANT USAGE ON SCHEMA ${schema} ${to}`,
    ...needs
      .filter((need) => (need.version ?? 1) <= version)
      .map((need) => `GRANT ${privilegeList(need)} ON ${objectList(schema, need)} ${to}`),
  ];
}

/** `SELECT (a, b), INSERT (a, b)`. */
export function privilegeList({ privileges, columns }: Privilege): string {
  const on = columns ? ` (${columns.join(', ')})` : '';
  return privileges.map((privilege) => privilege + on).join(', ');
}

export function objectList(schema: string, { kind, names }: Privilege): string {
  const objects = names.map((name) => `${schema}.${name}`).join(', ');
  return kind === 'TABLE' ? objects : `${kind} ${objects}`;
}

export function quoted(name: string): string {
  return `"${name.replaceAll('"', '""')}"`;
}
