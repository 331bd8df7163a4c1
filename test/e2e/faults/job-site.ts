import { eventually } from '../../support/eventually.js';
import type { JobTask } from '../../support/job-main.js';
import { bootApp } from '../../support/test-app.js';
import { createDatabase, type TestDatabase } from '../../support/test-database.js';
import { WorkerProcess } from '../../support/worker-process.js';
import { nothingLeft } from './fault-site.js';

/** What a method itself wrote about one of its runs. */
export interface RunRow {
  readonly job: string;
  readonly slot: Date;
  readonly attempt: number;
  readonly pid: number;
  readonly started: Date;
  /** When it returned or threw, or its process was found dead. */
  readonly ended: Date | null;
  readonly how: 'returned' | 'threw' | 'killed' | null;
  /** The class of its signal's reason. */
  readonly reason: string | null;
}

/** A job's slots, from the first to the last that was run. */
export interface Figures {
  readonly slots: number;
  readonly runs: number;
  readonly distinct: number;
  readonly gaps: number;
}

/**
 * A database with whole processes that run periodic jobs. What their methods do is on record in a database beside it,
 * on a server that no test stops: nothing there is unique, so that whatever happens twice, or at once, is seen.
 */
export class JobSite {
  private readonly workers: WorkerProcess[] = [];
  private readonly buried: Promise<unknown>[] = [];

  private constructor(
    readonly database: TestDatabase,
    readonly witness: TestDatabase,
  ) {}

  static async open(server?: string): Promise<JobSite> {
    const database = await createDatabase(server);
    const witness = await createDatabase();
    await witness.query(runsTable);
    await database.query(effectsTable);
    const installer = await bootApp({ url: database.url, outbox: { role: 'publisher' } });
    await installer.close();
    return new JobSite(database, witness);
  }

  /** A process with these jobs, once it is up. */
  async process(tasks: readonly JobTask[], env: Readonly<Record<string, string>> = {}): Promise<WorkerProcess> {
    const worker = WorkerProcess.launch(
      this.database.url,
      { JOBS: JSON.stringify(tasks), WITNESS_URL: this.witness.url, ...env },
      'job-main',
    );
    this.workers.push(worker);
    // Its unfinished runs ended with it, at the latest now.
    this.buried.push(worker.gone().then(() => this.witness.query(burySql, [worker.pid])));
    await worker.ready();
    return worker;
  }

  /** A job whose slot is due as soon as somebody has it. Its schedule as `job_state` has it. */
  async due(name: string, schedule: string): Promise<void> {
    await this.database.query(
      `INSERT INTO outbox.job_state (job, schedule, last_slot) VALUES ($1, $2, now() - interval '3 years')`,
      [name, schedule],
    );
  }

  async runs(name: string): Promise<RunRow[]> {
    return this.witness.query<RunRow & Record<string, unknown>>('SELECT * FROM runs WHERE job = $1 ORDER BY n', [name]);
  }

  /** Waits for the run that is the `count`th of a job, and has ended if `ended`. */
  async run(name: string, count: number, withinMs?: number): Promise<RunRow> {
    return eventually(`run ${count} of '${name}'`, async () => (await this.runs(name))[count - 1], withinMs);
  }

  /** Waits for so many new slots of a job, for each of them so long. */
  async ticks(name: string, count: number, withinMs?: number): Promise<void> {
    const now = await this.witness.value<Date>('SELECT clock_timestamp()');
    const sql = 'SELECT count(DISTINCT slot)::int FROM runs WHERE job = $1 AND slot > $2 AND ended IS NOT NULL';
    const seen = () => this.witness.value<number>(sql, [name, now]);
    for (let n = 1; n <= count; n++)
      await eventually(`tick ${n} of ${count} of '${name}'`, async () => (await seen()) >= n, withinMs);
  }

  /** Waits until a job of every so many seconds rests: its last run is on record, and its next slot is not near. */
  async rests(name: string, everySeconds: number): Promise<void> {
    await eventually(`'${name}' rests`, () =>
      this.database.value<boolean>(
        `SELECT running_slot IS NULL AND extract(epoch FROM clock_timestamp())::numeric % $2::int BETWEEN 0.2 AND $2::int - 1.5
          AND last_slot > clock_timestamp() - $2::int * interval '1 second' FROM outbox.job_state WHERE job = $1`,
        [name, everySeconds],
      ),
    );
  }

  /** Pairs of runs of one job that were under way at the same time. There must be none. */
  overlaps(): Promise<unknown[]> {
    return this.witness.query(overlapsSql);
  }

  /** Of a job that ticks so often. */
  async figures(name: string, everySeconds = 1): Promise<Figures> {
    const [row] = await this.witness.query<Figures & Record<string, unknown>>(figuresSql, [name, everySeconds]);
    return row ?? { slots: 0, runs: 0, distinct: 0, gaps: 0 };
  }

  /** Ends everything, then looks at what is left behind: no lock, no session. */
  async close(): Promise<void> {
    await Promise.all(this.workers.map((worker) => worker.kill()));
    await Promise.all(this.buried);
    try {
      expect(await this.overlaps()).toEqual([]);
      await nothingLeft(this.database);
    } finally {
      await this.database.drop();
      await this.witness.drop();
    }
  }
}

const runsTable = `
CREATE TABLE runs (n int GENERATED ALWAYS AS IDENTITY, job text, slot timestamptz, attempt int, tenant text, pid int, app_clock timestamptz,
  started timestamptz DEFAULT clock_timestamp(), ended timestamptz, how text, reason text)`;

const effectsTable = 'CREATE TABLE effects (tenant text, slot timestamptz, pid int)';

const burySql = `UPDATE runs SET ended = clock_timestamp(), how = 'killed' WHERE pid = $1 AND ended IS NULL`;

const overlapsSql = `
SELECT a.job, a.slot, a.attempt, a.pid, a.started, a.ended, b.slot AS slot_2, b.attempt AS attempt_2, b.pid AS pid_2, b.started AS started_2
FROM runs a JOIN runs b ON b.job = a.job AND b.n <> a.n AND b.started >= a.started AND b.started < coalesce(a.ended, 'infinity')
WHERE a.tenant IS NULL AND b.tenant IS NULL`;

const figuresSql = `
SELECT slots, runs, "distinct", slots - "distinct" AS gaps FROM
  (SELECT (1 + extract(epoch FROM max(slot) - min(slot)) / $2::int)::int AS slots, count(*)::int AS runs, count(DISTINCT slot)::int AS "distinct"
   FROM runs WHERE job = $1) one`;
