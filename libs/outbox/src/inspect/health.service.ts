import { databaseTrouble, errorCode } from '../core/database-errors.js';
import { withDeadline } from '../core/deadline.js';
import type { TransportProblem } from '../core/transport.js';
import type { WorkerIdentity } from '../core/worker-identity.js';
import type { Database } from '../tables/database.js';
import { type HealthPart, healthNeeds, healthParts } from '../tables/health.table.js';
import type { InfrastructureConnection } from '../tables/infrastructure-connection.js';
import type { BatchError } from '../tables/wire/batch.js';
import { type Answers, figuresOf } from './health-figures.js';
import { judge } from './health-judgement.js';
import { type HealthProblem, type HealthReport, healthReport, noFigures } from './health-report.js';

/** Less than probes wait by habit, and longer than any answer takes when all is well. */
const answerMs = 5_000;

/** What was asked, what was answered, and what could not be had. */
interface Look {
  readonly answers: Answers;
  readonly problems: readonly HealthProblem[];
}

/**
 * How the outbox is: for probes, dashboards and people. Every role may ask. A process that works reports on the whole
 * outbox; a publisher reports what its database role may read, which is little with `grants({ publisher })` alone and
 * everything with `grants({ operator })` beside it.
 *
 * Of sessions of other roles Postgres shows who they are, but neither how long their transaction lasts nor what it does,
 * unless this role is a superuser or has `pg_read_all_stats`. Without it the holder of vacuum is judged by how many
 * transactions began since.
 */
export class OutboxHealth {
  private looking: Promise<Look> | undefined;

  constructor(
    private readonly database: Database,
    /** Shared with the loops of a worker; in a publisher it opens when health is asked for the first time. */
    private readonly connection: InfrastructureConnection,
    /** Of a process that works. */
    private readonly identity: WorkerIdentity | undefined,
    private readonly pollMs: number,
    /** Whether other processes can wake this one; null where nobody else works. */
    private readonly listening: () => boolean | null = () => null,
    /** What this process's transport says is wrong. */
    private readonly transport: () => readonly TransportProblem[] = () => [],
  ) {}

  /** Never throws, and never takes longer than 5 seconds: a database that does not answer is a red report. */
  async check(): Promise<HealthReport> {
    try {
      const { answers, problems } = await withDeadline('it', answerMs, this.look());
      const figures = figuresOf(answers, this.identity, this.listening());
      return healthReport(figures, [
        ...problems,
        ...judge(figures, this.pollMs),
        ...this.transport().map(brokerProblem),
      ]);
    } catch (error) {
      return this.unanswered(error);
    }
  }

  /**
   * One look at a time, and whoever asks meanwhile gets the same one. Otherwise the probes of an outage would pile up
   * in front of the loops that share the connection, each waiting for its own end.
   */
  private look(): Promise<Look> {
    this.looking ??= this.begin().finally(() => {
      this.looking = undefined;
    });
    return this.looking;
  }

  private async begin(): Promise<Look> {
    const number = this.identity?.number;
    const { lacking, role } = await this.lacking();
    const parts = healthParts.filter((part) => !lacking.has(part) && (part !== 'lock' || number !== undefined));
    const { answers, problems } = await this.ask(parts, number);
    // A publisher is not meant to read them.
    const blamed = this.identity ? [...lacking].map(([part, tables]) => forbidden(part, tables, role)) : [];
    return { answers: { ...answers, asked: number }, problems: [...problems, ...blamed] };
  }

  /** Asked, and not tried: the server would log an error for every probe of a publisher. */
  private async lacking(): Promise<{ lacking: Map<HealthPart, string[]>; role: string }> {
    const [{ rows }] = await this.connection.run(this.database.facts.lacking(healthNeeds));
    const lacking = new Map<HealthPart, string[]>();
    for (const { need, name } of rows) {
      const part = healthParts[need];
      if (part) lacking.set(part, [...(lacking.get(part) ?? []), `${this.database.schema}.${name}`]);
    }
    return { lacking, role: rows[0]?.role ?? '' };
  }

  /** All parts as one message; what fails is left out of the next, so that one locked table does not hide the others. */
  private async ask(parts: readonly HealthPart[], number: number | undefined): Promise<Look> {
    const { health } = this.database;
    const statements = health.ask(number);
    const problems: HealthProblem[] = [];
    for (let left = parts; ; ) {
      try {
        const [, ...results] = await this.connection.run(health.limit, ...left.map((part) => statements[part]));
        return { answers: Object.fromEntries(left.map((part, i) => [part, results[i]?.rows])), problems };
      } catch (error) {
        const failed = left[((error as BatchError).statement ?? 0) - 1];
        if (failed === undefined || databaseTrouble(error) === 'outage') throw error;
        problems.push(unread(failed, error));
        left = left.filter((part) => part !== failed);
      }
    }
  }

  private unanswered(error: unknown): HealthReport {
    const message = `the database gave no figures: ${textOf(error)}; see whether it is up and reachable, and what holds it up`;
    const worker = this.identity
      ? { number: this.identity.number ?? null, holdsLock: null, listening: this.listening() }
      : null;
    const red = { status: 'red', code: 'database', message } as const;
    return healthReport({ ...noFigures, worker }, [red, ...this.transport().map(brokerProblem)]);
  }
}

function forbidden(part: HealthPart, tables: readonly string[], role: string): HealthProblem {
  return {
    status: 'red',
    code: 'unreadable',
    message: `no figures of ${part}: role "${role}" lacks SELECT on ${tables.join(', ')}, which a worker needs; repeat outboxSchema.grants({ worker: '${role}' }) as the owner of the schema`,
  };
}

/** What it would show is unknown, and may be the worst. */
function unread(part: HealthPart, error: unknown): HealthProblem {
  return {
    status: 'red',
    code: 'unreadable',
    message: `no figures of ${part}: ${textOf(error)}; if it took too long, look for a lock on its tables or a transaction that keeps vacuum from them`,
  };
}

function brokerProblem({ status, message }: TransportProblem): HealthProblem {
  return { status: status === 'down' ? 'red' : 'yellow', code: 'broker', message };
}

/** A refused connection to a name with two addresses is an AggregateError, which has a code and no message. */
function textOf(error: unknown): string {
  const message = error instanceof Error ? error.message : String(error);
  return message || (errorCode(error) ?? 'an error without a message');
}
