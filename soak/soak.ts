import { setTimeout as pause } from 'node:timers/promises';
import { outboxSchema } from 'nestjs-outbox';
import { startPostgres, type ThrowawayPostgres } from 'throwaway-postgres';
import { DataSource } from 'typeorm';
import { type FaultCounts, Faults } from './faults.js';
import { Fleet } from './fleet.js';
import type { SoakOptions } from './options.js';
import { PatientPool } from './patient-pool.js';
import { faultPlan } from './plan.js';
import { tablesSql, waitingSql } from './tables.js';
import { type Counts, count, judgeTicks, readTicks, wrong } from './tally.js';

export interface Result extends Counts {
  readonly ok: boolean;
  readonly seed: number;
  readonly minutes: number;
  /** Transactions of publishers that ended with an error, and those of them that were committed all the same. */
  readonly uncertain: number;
  readonly uncertainCommitted: number;
  readonly kills: Omit<FaultCounts, 'fast' | 'immediate'>;
  readonly restarts: Pick<FaultCounts, 'fast' | 'immediate'>;
  /** Processes that ended and should not have. */
  readonly exits: number;
  /** Rows that waited still when nothing had moved for long. */
  readonly waiting: number;
  readonly jobSlots: number;
  readonly jobsTogether: number;
  readonly jobsBesidePaused: number;
  readonly seconds: number;
}

/** Without any change this long the rest is given up. The longest wait of the library's own is a minute. */
const patienceMs = 120_000;
const lookEveryMs = 250;

export async function soak(main: string, options: SoakOptions, signal: AbortSignal): Promise<Result> {
  const began = performance.now();
  const note = (line: string): void => {
    process.stderr.write(`${((performance.now() - began) / 1_000).toFixed(1).padStart(7)} s  ${line}\n`);
  };
  note(`seed ${options.seed}: npm run soak -- --seed ${options.seed} --minutes ${options.minutes}`);
  const server = await startPostgres({ settings: { max_connections: '200', fsync: 'off' } });
  try {
    const database = new PatientPool(server.url, 'soak tally');
    try {
      return await new Run(main, options, server, database, note, signal).result(began);
    } finally {
      await database.close();
    }
  } finally {
    await server.stop();
  }
}

class Run {
  private readonly fleet: Fleet;
  private readonly faults: Faults;

  constructor(
    main: string,
    private readonly options: SoakOptions,
    private readonly server: ThrowawayPostgres,
    private readonly database: PatientPool,
    private readonly note: (line: string) => void,
    private readonly signal: AbortSignal,
  ) {
    const { seed, eventsPerSecond, verbose } = options;
    this.fleet = new Fleet(main, { url: server.url, seed, eventsPerSecond }, note, verbose);
    this.faults = new Faults(this.fleet, server, database, note);
  }

  async result(began: number): Promise<Result> {
    const { fleet, faults, database, options } = this;
    try {
      await install(this.server.url, database);
      await fleet.start();
      this.note(`three workers, two publishers on ${this.server.url}`);
      const forMs = options.minutes * 60_000;
      await faults.happen(faultPlan(options.seed, forMs), forMs, this.signal);
      await fleet.allGoOn();
      await fleet.ready('worker');
      const { committed, uncertain } = await fleet.published();
      const waiting = await this.drained();
      await fleet.stop();
      const counts = await count(database, committed);
      return await this.judged(counts, { committed: committed.length, uncertain, waiting }, began);
    } finally {
      await fleet.allGoOn();
      await fleet.stop();
    }
  }

  private async judged(
    counts: Counts,
    { committed, uncertain, waiting }: { committed: number; uncertain: number; waiting: number },
    began: number,
  ): Promise<Result> {
    const { fleet, database, options } = this;
    const jobs = judgeTicks(await readTicks(database), fleet.deaths, fleet.pauses);
    for (const line of jobs.besidePaused) this.note(`beside a paused process: ${line}`);
    const [orders] = await database.rows<{ n: number }>(
      `SELECT count(*)::int AS n FROM notes WHERE type = 'soak.order.placed'`,
    );
    const { kill, pause: paused, terminate, fast, immediate } = this.faults.counts;
    const { lost, twice, deadByMistake, unkept, torn, unasked } = counts;
    const mistakes =
      lost + twice + deadByMistake + unkept + torn + unasked + waiting + fleet.exits + jobs.together.length;
    if (mistakes > 0)
      for (const line of [...(await wrong(database)), ...jobs.together.slice(0, 20)]) this.note(`wrong: ${line}`);
    return {
      ok: mistakes === 0 && counts.events > 0 && jobs.slots > 0,
      seed: options.seed,
      minutes: options.minutes,
      ...counts,
      uncertain,
      uncertainCommitted: (orders?.n ?? 0) - committed,
      kills: { kill, pause: paused, terminate },
      restarts: { fast, immediate },
      exits: fleet.exits,
      waiting,
      jobSlots: jobs.slots,
      jobsTogether: jobs.together.length,
      jobsBesidePaused: jobs.besidePaused.length,
      seconds: Math.round((performance.now() - began) / 100) / 10,
    };
  }

  /** Waits until nothing waits any more; how many rows still do when nothing has changed for long. */
  private async drained(): Promise<number> {
    let before = '';
    let changed = performance.now();
    for (;;) {
      const [row] = await this.database.rows<{ queued: number; deliveries: number; effects: number }>(waitingSql);
      const waiting = (row?.queued ?? 0) + (row?.deliveries ?? 0);
      if (waiting === 0) return 0;
      if (JSON.stringify(row) !== before) changed = performance.now();
      before = JSON.stringify(row);
      if (performance.now() - changed > patienceMs) return waiting;
      await pause(lookEveryMs, undefined, { signal: this.signal });
    }
  }
}

async function install(url: string, database: PatientPool): Promise<void> {
  const dataSource = await new DataSource({ type: 'postgres', url }).initialize();
  await outboxSchema.up(dataSource);
  await dataSource.destroy();
  await database.rows(tablesSql);
}
