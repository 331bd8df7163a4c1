import { setTimeout as pause } from 'node:timers/promises';
import { EventPublisher, OutboxInspector } from 'nestjs-outbox';
import { DataSource } from 'typeorm';
import { bootApp } from './app.js';
import { PatientPool } from './patient-pool.js';
import { pick, Random, seedOf } from './random.js';
import type { SoakTask } from './reports.js';
import type { Answered, PausedTime } from './shift.js';

/** What an event looks like to whoever picks one. */
export interface SeenEvent extends Record<string, unknown> {
  readonly id: string;
  readonly type: string;
  readonly subject: string | null;
  readonly tenant: string | null;
  readonly key: string | null;
}

/** What the library may answer while servers go down and sessions are ended; the texts are those of pg and TypeORM. */
const outage =
  /terminat|ECONN|EPIPE|Client was closed|connection|timeout exceeded|is not queryable|shutting down|starting up|recovery mode|Query ?Runner|not connected/i;
const outageCodes = /^(57P0|08|53300|25006)/;

/** The place where an operator's lanes work, and the record of what they did. */
export class Desk {
  readonly answered: Answered[] = [];
  readonly paused: PausedTime[] = [];
  readonly surprises: string[] = [];
  aborted = 0;
  reads = 0;
  waits = 0;
  unanswered = 0;
  private ops = 0;

  private constructor(
    readonly inspector: OutboxInspector,
    readonly publisher: EventPublisher,
    readonly dataSource: DataSource,
    /** It looks beside the library, and no outage ends what it asks. */
    readonly witness: PatientPool,
    private readonly seed: number,
    readonly close: () => Promise<void>,
  ) {}

  static async open(task: SoakTask): Promise<Desk> {
    const app = await bootApp(task, 'soak operator', 'publisher', []);
    const witness = new PatientPool(task.url, 'soak witness');
    return new Desk(app.get(OutboxInspector), app.get(EventPublisher), app.get(DataSource), witness, task.seed, () =>
      app.close(),
    );
  }

  random(lane: number): Random {
    return new Random(seedOf(this.seed, 1_000, lane));
  }

  /** Stands in the audit as the reason, and says more than who it was. */
  op(words = ''): string {
    this.ops += 1;
    return `op ${this.ops}${words && ` ${words}`}`;
  }

  done(kind: string, op: string, rows = 1): void {
    this.answered.push({ op, kind, rows });
  }

  /** By the database's clock. */
  async now(): Promise<number> {
    const [row] = await this.witness.rows<{ ms: number }>(nowSql);
    return row?.ms ?? 0;
  }

  /** One of the last few hundred events, most often a very young one. */
  async event(random: Random): Promise<SeenEvent | undefined> {
    const seen = await this.witness.rows<SeenEvent>(eventsSql, [random.next() < 0.7 ? 20 : 400]);
    return pick(seen, random.next());
  }

  /** Over and over until the end; what fails by an outage is no surprise, everything else is. */
  async lane(name: string, restMs: number, stopped: () => boolean, step: () => Promise<void>): Promise<void> {
    while (!stopped()) {
      await step().catch((error: unknown) => this.failed(name, error));
      await pause(restMs);
    }
  }

  failed(name: string, error: unknown): void {
    const { code, message, driverError } = error as {
      code?: unknown;
      message?: string;
      driverError?: { code?: unknown };
    };
    const text = `${name}: ${String(driverError?.code ?? code ?? '')} ${String(message ?? error)}`;
    if (outageCodes.test(String(driverError?.code ?? code)) || outage.test(text)) this.unanswered += 1;
    else this.surprises.push(text);
  }
}

const nowSql = 'SELECT (extract(epoch FROM clock_timestamp()) * 1000)::float8 AS ms';

const eventsSql = `
SELECT id, type, subject, tenant_id AS tenant, payload ->> 'key' AS key FROM outbox.events ORDER BY id DESC LIMIT $1`;
