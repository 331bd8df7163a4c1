import { inspect } from 'node:util';
import type { EntityManager } from 'typeorm';
import { errorText } from '../core/error-text.js';
import { Turnstile } from '../core/turnstile.js';
import { messageOf, TenantFailedError } from '../outbox.job-errors.js';
import { poolReserve } from '../tables/database.js';
import type { InfrastructureConnection } from '../tables/infrastructure-connection.js';
import type { JobAttempt } from '../tables/jobs.table.js';
import { type JobTransactionParts, runPiece } from './job-transaction.js';

export type ListTenants = (manager: EntityManager) => Promise<readonly string[]>;

/** One call of `ctx.perTenant`: which attempt it is part of, and what to do for each tenant. */
export interface TenantRound extends JobAttempt {
  /** Its number among the calls of this run, from 0. */
  readonly part: number;
  readonly concurrency: number;
  readonly signal: AbortSignal;
  work(tenantId: string, manager: EntityManager): unknown;
}

/** Errors of tenants that are told one by one in the message of the joined error; all are in its `errors`. */
const namedInMessage = 50;

/** Runs something once for each tenant of a slot, however often the slot is taken up. */
export class TenantRunner {
  private passage: Turnstile | undefined;

  constructor(
    private readonly parts: JobTransactionParts,
    /** The scheduler's: reads who is done. */
    private readonly connection: InfrastructureConnection,
    private readonly list: ListTenants | undefined,
  ) {}

  async run(round: TenantRound): Promise<void> {
    const { database } = this.parts;
    const { concurrency, job } = round;
    const most = database.poolMax - poolReserve;
    if (!Number.isInteger(concurrency) || concurrency < 1 || concurrency > most)
      throw new RangeError(
        `job '${job}' runs ${concurrency} tenants at once; it is a whole number from 1 to ${most}, what the DataSource's pool can spare`,
      );
    const tenants = await this.tenants(round);
    const [{ rows }] = await this.connection.run(database.jobTenants.verdicts(round));
    const verdicts = new Map(rows.map(({ tenant, error }) => [tenant, error]));
    const errors = new Map<string, Error>();
    for (const tenant of tenants) {
      const error = verdicts.get(tenant);
      if (typeof error === 'string')
        errors.set(tenant, new TenantFailedError(round.job, tenant, new Error(error.split('\n')[0])));
    }
    const waiting = tenants.filter((tenant) => !verdicts.has(tenant));
    const next = async (): Promise<void> => {
      // Those left in `waiting` are not begun.
      const tenant = round.signal.aborted ? undefined : waiting.shift();
      const error = tenant === undefined ? undefined : await this.one(round, tenant);
      if (tenant !== undefined && error) errors.set(tenant, error);
    };
    const lane = async (): Promise<void> => {
      while (waiting.length > 0 && !round.signal.aborted) await this.turnstile.through(next);
    };
    await Promise.all(Array.from({ length: round.concurrency }, lane));
    if (errors.size > 0 || waiting.length > 0) throw joined(round, tenants, errors, waiting.length);
  }

  /**
   * One for all jobs: each tenant holds a connection while its rows (`ctx.each`) wait for another, and two jobs that each
   * took what the pool can spare would wait for each other.
   */
  private get turnstile(): Turnstile {
    this.passage ??= new Turnstile(this.parts.database.poolMax - poolReserve);
    return this.passage;
  }

  private async one(round: TenantRound, tenant: string): Promise<Error | undefined> {
    const key = { ...round, tenant };
    const { jobTenants } = this.parts.database;
    try {
      const piece = {
        name: `job ${round.job}, tenant ${tenant}`,
        tenantId: tenant,
        claim: jobTenants.claim(key),
        repeatable: true,
        work: (manager: EntityManager) => round.work(tenant, manager),
        // What fails because it was asked to end has no verdict: it is run again with the slot.
        failed: (error: unknown) => {
          const text = errorText(error);
          return round.signal.aborted
            ? undefined
            : { inside: jobTenants.failed(key, text), after: jobTenants.failedAfter(key, text) };
        },
      };
      await runPiece(this.parts, piece, round.signal);
      return undefined;
    } catch (error) {
      return new TenantFailedError(round.job, tenant, error);
    }
  }

  private async tenants({ job, signal }: TenantRound): Promise<string[]> {
    const { list } = this;
    if (!list)
      throw new Error(
        `job '${job}' runs per tenant, and nobody says which tenants there are: OutboxModule.forRoot({ tenancy: { list: (manager) => … } })`,
      );
    let found: readonly unknown[] = [];
    const piece = {
      name: `job ${job}, tenancy.list`,
      tenantId: null,
      claim: this.parts.database.jobTenants.enter(''),
      repeatable: true,
      work: async (manager: EntityManager) => {
        found = await list(manager);
      },
      failed: () => undefined,
    };
    await runPiece(this.parts, piece, signal);
    if (!Array.isArray(found))
      throw new TypeError(`tenancy.list answered ${shown(found)}; it answers an array of names`);
    // By its place: what is odd may be `undefined` itself.
    const odd = found.findIndex((tenant) => typeof tenant !== 'string' || tenant === '');
    if (odd >= 0)
      throw new TypeError(
        `tenancy.list answered ${shown(found[odd])} among the tenants; it answers an array of names that are not empty`,
      );
    return [...new Set(found as readonly string[])];
  }
}

function shown(value: unknown): string {
  return inspect(value, { depth: 0, maxStringLength: 50, maxArrayLength: 5 });
}

function joined(
  { job, slot, signal }: TenantRound,
  tenants: readonly string[],
  errors: ReadonlyMap<string, Error>,
  notBegun: number,
): AggregateError {
  const order = tenants.flatMap((tenant) => errors.get(tenant) ?? []);
  const told = order.slice(0, namedInMessage).map((error) => messageOf(error));
  if (order.length > told.length) told.push(`and ${order.length - told.length} more`);
  if (notBegun > 0) told.push(`${notBegun} not begun: ${messageOf(signal.reason)}`);
  return new AggregateError(
    order,
    `job '${job}', slot ${new Date(slot).toISOString()}: ${order.length} of ${tenants.length} tenants failed: ${told.join('; ')}`,
  );
}
