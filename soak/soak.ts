import { setTimeout as pause } from 'node:timers/promises';
import { outboxSchema } from 'nestjs-outbox';
import { startNats } from 'throwaway-nats';
import { startPostgres } from 'throwaway-postgres';
import { DataSource } from 'typeorm';
import { type FaultCounts, Faults, type Targets } from './faults.js';
import { Fleet } from './fleet.js';
import { judgeShift, mistakesOf, type OperatorReport, open } from './operator-tally.js';
import type { SoakOptions } from './options.js';
import { PatientPool } from './patient-pool.js';
import { ackWaitMs, faultPlan, type SoakTransport } from './plan.js';
import type { Shift } from './shift.js';
import { tablesSql, waitingSql } from './tables.js';
import { type Counts, count, judgeTicks, missing, readTicks, wrong } from './tally.js';

export interface Result extends Counts {
  readonly ok: boolean;
  readonly transport: SoakTransport;
  readonly seed: number;
  readonly minutes: number;
  /** Transactions of publishers that ended with an error, and those of them that were committed all the same. */
  readonly uncertain: number;
  readonly uncertainCommitted: number;
  readonly kills: Pick<FaultCounts, 'kill' | 'pause' | 'terminate'>;
  readonly restarts: Pick<FaultCounts, 'fast' | 'immediate'>;
  /** What happened to nats-server. */
  readonly broker?: FaultCounts['broker'];
  /** Processes that ended and should not have. */
  readonly exits: number;
  /** Rows that waited still when nothing had moved for long. */
  readonly waiting: number;
  /** What somebody did meanwhile who pauses, cancels and mends; with that one its `lost` and `twice` count. */
  readonly operator?: Omit<OperatorReport, 'lines'>;
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
  const { seed, minutes, transport, operator } = options;
  note(
    `seed ${seed}: npm run soak -- --transport ${transport} --seed ${seed} --minutes ${minutes}${operator ? ' --operator' : ''}`,
  );
  const closing: (() => Promise<void>)[] = [];
  try {
    const broker = transport === 'jetstream' ? await startNats() : undefined;
    if (broker) closing.push(() => broker.stop());
    const server = await startPostgres({ settings: { max_connections: '200', fsync: 'off' } });
    closing.push(() => server.stop());
    const database = new PatientPool(server.url, 'soak tally');
    closing.push(() => database.close());
    return await new Run(main, options, { server, database, broker }, note, signal).result(began);
  } finally {
    for (const close of closing.toReversed()) await close();
  }
}

interface Ended {
  readonly committed: number;
  readonly uncertain: number;
  readonly waiting: number;
  readonly shift: Shift | undefined;
}

class Run {
  private readonly fleet: Fleet;
  private readonly faults: Faults;

  constructor(
    main: string,
    private readonly options: SoakOptions,
    private readonly stage: Omit<Targets, 'fleet'>,
    private readonly note: (line: string) => void,
    private readonly signal: AbortSignal,
  ) {
    const { seed, eventsPerSecond, verbose, operator } = options;
    const { server, broker } = stage;
    this.fleet = new Fleet(
      main,
      { url: server.url, natsUrl: broker?.url, seed, eventsPerSecond },
      note,
      verbose,
      operator ? 1 : 0,
    );
    this.faults = new Faults({ ...stage, fleet: this.fleet }, note);
  }

  async result(began: number): Promise<Result> {
    const { fleet, faults, options, stage } = this;
    const { server, database, broker } = stage;
    try {
      await install(server.url, database);
      await fleet.start();
      this.note(`three workers, two publishers on ${server.url}${broker ? ` and ${broker.url}` : ''}`);
      const forMs = options.minutes * 60_000;
      await faults.happen(faultPlan(options.seed, forMs, options.transport), forMs, this.signal);
      await fleet.allGoOn();
      await fleet.ready('worker');
      const { committed, uncertain } = await fleet.published();
      const shift = await fleet.operated();
      const waiting = await this.drained();
      await fleet.stop();
      const counts = await count(database, committed);
      return await this.judged(counts, { committed: committed.length, uncertain, waiting, shift }, began);
    } finally {
      await fleet.allGoOn();
      await fleet.stop();
    }
  }

  private async judged(
    counts: Counts,
    { committed, uncertain, waiting, shift }: Ended,
    began: number,
  ): Promise<Result> {
    const { fleet, options } = this;
    const { database } = this.stage;
    const ticks = await readTicks(database);
    const jobs = judgeTicks(ticks, fleet.deaths, fleet.pauses);
    const by = shift && (await judgeShift(database, shift, ticks, fleet.pauses));
    for (const line of jobs.besidePaused) this.note(`beside a paused process: ${line}`);
    const [orders] = await database.rows<{ n: number }>(
      `SELECT count(*)::int AS n FROM notes WHERE type = 'soak.order.placed'`,
    );
    const { lost, twice } = by ?? counts;
    const { deadByMistake, unkept, torn, unasked, events } = counts;
    const mistakes =
      lost + twice + deadByMistake + unkept + torn + unasked + waiting + fleet.exits + jobs.together.length;
    const ok = mistakes + (by ? mistakesOf(by) : 0) === 0;
    if (!ok)
      for (const line of [...(by?.lines ?? (await wrong(database))), ...jobs.together.slice(0, 20)])
        this.note(`wrong: ${line}`);
    return {
      ok: ok && events > 0 && jobs.slots > 0,
      transport: options.transport,
      seed: options.seed,
      minutes: options.minutes,
      ...{ ...counts, lost, twice },
      ...(by && { operator: figuresOf(by) }),
      uncertain,
      uncertainCommitted: (orders?.n ?? 0) - committed,
      ...this.happened(),
      exits: fleet.exits,
      waiting,
      jobSlots: jobs.slots,
      jobsTogether: jobs.together.length,
      jobsBesidePaused: jobs.besidePaused.length,
      seconds: Math.round((performance.now() - began) / 100) / 10,
    };
  }

  private happened(): Pick<Result, 'kills' | 'restarts' | 'broker'> {
    const { kill, pause, terminate, fast, immediate, broker } = this.faults.counts;
    return { kills: { kill, pause, terminate }, restarts: { fast, immediate }, ...(this.stage.broker && { broker }) };
  }

  /** Waits until nothing waits any more; how many rows still do when nothing has changed for long. */
  private async drained(): Promise<number> {
    const { database, broker } = this.stage;
    const { operator } = this.options;
    let before = '';
    let changed = performance.now();
    for (;;) {
      const [row] = await database.rows<{ queued: number; deliveries: number; effects: number }>(waitingSql);
      const waiting = (row?.queued ?? 0) + (row?.deliveries ?? 0);
      if (waiting === 0 && (!broker || (await (operator ? open : missing)(database)) === 0)) break;
      if (JSON.stringify(row) !== before) changed = performance.now();
      before = JSON.stringify(row);
      if (performance.now() - changed > patienceMs) return waiting;
      await pause(lookEveryMs, undefined, { signal: this.signal });
    }
    // What the broker has no word for yet comes once more: it must find its mark.
    if (broker) await pause(3 * ackWaitMs, undefined, { signal: this.signal });
    return 0;
  }
}

function figuresOf({ lines: _, ...figures }: OperatorReport): Omit<OperatorReport, 'lines'> {
  return figures;
}

async function install(url: string, database: PatientPool): Promise<void> {
  const dataSource = await new DataSource({ type: 'postgres', url }).initialize();
  await outboxSchema.up(dataSource);
  await dataSource.destroy();
  await database.rows(tablesSql);
}
