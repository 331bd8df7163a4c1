import { randomUUID } from 'node:crypto';
import { setTimeout as pause } from 'node:timers/promises';
import type { DemoArguments, DemoTransport } from './arguments.js';
import { DemoError } from './demo-error.js';
import { Feeder } from './feeder.js';
import { type InputLine, publishInput, readInput } from './input-file.js';
import { JobTally } from './job-tally.js';
import { JobWatch } from './job-watch.js';
import { Progress } from './progress.js';
import { openShow, type Show } from './show.js';
import { type Counts, deliveriesOf, Tally } from './tally.js';

export interface Result {
  readonly ok: boolean;
  readonly transport: DemoTransport;
  readonly published: number;
  readonly handled: number;
  readonly handledTwice: number;
  readonly lost: number;
  readonly retried: number;
  readonly deadLetters: number;
  readonly seconds: number;
  /** Per job: slots that were run to their end, and runs that did their work. */
  readonly jobTicks: Readonly<Record<string, number>>;
  readonly jobRuns: Readonly<Record<string, number>>;
  readonly kills?: number;
  readonly natsRestarts?: number;
}

/** Requests at a time; handlers need connections of the same pool. */
const lanes = 4;
const lookEveryMs = 200;
/** Without any change this long the run is given up. The longest wait of the library's own is a minute. */
const patienceMs = 120_000;
/** The same when nothing waits in the outbox any more: what is missing then is lost, unless a broker may still have it. */
const lastPatienceMs = 10_000;
/** Broken promises of jobs that are told one by one. */
const mostWords = 20;

/** Runs to the end; the result is counted after everything has been stopped. */
export async function runOnce(main: string, options: DemoArguments, signal: AbortSignal): Promise<Result> {
  const lines = options.input === undefined ? undefined : await readInput(options.input);
  const total = lines
    ? lines.reduce((sum, line) => sum + deliveriesOf(line.type), 0)
    : Feeder.deliveries(options.events);
  const progress = new Progress(total);
  let show: Show | undefined;
  try {
    show = await openShow(main, options, (line) => progress.note(line), signal);
    const { adminUrl, blobFolder, since } = show.stage;
    const tally = new Tally(adminUrl, randomUUID(), blobFolder);
    const jobTally = new JobTally(adminUrl, since);
    try {
      await tally.open();
      await jobTally.open();
      const began = performance.now();
      const run = new Run(show, tally, new JobWatch(show, jobTally), progress, signal);
      await Promise.race([run.toTheEnd(options, lines), show.failed]);
      const seconds = Math.round((performance.now() - began) / 100) / 10;
      await show.stopApp();
      return await run.result(seconds);
    } finally {
      await jobTally.close();
      await tally.close();
    }
  } finally {
    progress.stop();
    await show?.close();
  }
}

class Run {
  constructor(
    private readonly show: Show,
    private readonly tally: Tally,
    private readonly jobs: JobWatch,
    private readonly progress: Progress,
    private readonly signal: AbortSignal,
  ) {}

  async toTheEnd(options: DemoArguments, lines: readonly InputLine[] | undefined): Promise<void> {
    let publishing = true;
    const published = this.publish(options, lines).finally(() => {
      publishing = false;
    });
    await Promise.all([published, this.settled(() => publishing)]);
    this.show.pool?.calm();
    const { deliveries, missing } = await this.tally.counts();
    await this.jobs.settled(this.signal, (awaited) =>
      this.progress.update(deliveries - missing, `waiting for the jobs: ${awaited}`),
    );
    this.stopIfAsked();
  }

  async result(seconds: number): Promise<Result> {
    const { tally, progress } = this;
    const { pool, stage } = this.show;
    const counts = await tally.counts();
    const filesLeft = await tally.filesLeft();
    const strayFiles = await tally.strayFiles();
    const jobs = await this.jobs.report();
    for (const words of jobs.broken.slice(0, mostWords)) progress.note(`broken: ${words}`);
    if (jobs.broken.length === 0) for (const words of jobs.awaited) progress.note(`unfinished: ${words}`);
    if (strayFiles > 0) progress.note(`stray: ${strayFiles} files of which no row knows`);
    const jobsKept = jobs.broken.length === 0 && jobs.awaited.length === 0 && strayFiles === 0;
    const lost = counts.missing + counts.mailsMissing + filesLeft;
    for (const { event_id, durable, state } of counts.missing > 0 ? await tally.missing(10) : [])
      progress.note(`missing: ${durable} of event ${event_id}: ${state}`);
    if (counts.mailsMissing > 0) progress.note(`missing: ${counts.mailsMissing} mails noted as sent`);
    if (filesLeft > 0) progress.note(`missing: the removal of ${filesLeft} files`);
    if (counts.waiting > 0) progress.note(`unfinished: ${counts.waiting} rows still wait in the outbox`);
    if (counts.mailRepeats > 0)
      progress.note(`the mail server was handed ${counts.mailRepeats} mails again and delivered each once`);
    return {
      ok: lost === 0 && counts.twice === 0 && counts.waiting === 0 && counts.published === tally.noted && jobsKept,
      transport: stage.broker ? 'jetstream' : 'postgres',
      published: counts.published,
      handled: counts.handled,
      handledTwice: counts.twice,
      lost,
      retried: counts.retried,
      deadLetters: counts.dead,
      seconds,
      jobTicks: jobs.ticks,
      jobRuns: jobs.runs,
      ...(pool ? { kills: pool.kills } : {}),
      ...(stage.broker ? { natsRestarts: stage.broker.restarts } : {}),
    };
  }

  private async publish(options: DemoArguments, lines: readonly InputLine[] | undefined): Promise<void> {
    if (lines) {
      for (const event of await publishInput(this.show.app, options.input ?? '', lines)) this.tally.note(event);
      await this.restartBroker(options);
      return;
    }
    const feeder = new Feeder(this.show.app);
    let next = 0;
    const lane = async (): Promise<void> => {
      while (next < options.events && !this.signal.aborted) {
        const n = next++;
        // This lane waits for it; the others go on, as publishing needs no broker.
        const restarted = n === Math.floor(options.events / 2) ? this.restartBroker(options) : undefined;
        const [event] = await Promise.all([feeder.feed(n), restarted]);
        this.tally.note(event);
      }
    };
    await Promise.all(Array.from({ length: lanes }, lane));
  }

  private async restartBroker({ kill }: DemoArguments): Promise<void> {
    if (kill) await this.show.stage.broker?.restart();
  }

  /** Until every delivery has its effect or its dead letter and nothing waits; or until nothing has changed for long. */
  private async settled(publishing: () => boolean): Promise<void> {
    let before = '';
    let changed = performance.now();
    while (!this.signal.aborted) {
      const complete = !publishing();
      const counts = await this.tally.counts();
      const done = counts.deliveries - counts.missing;
      this.progress.update(done, describe(counts, this.show));
      if (complete && counts.missing === 0 && counts.waiting === 0) return;
      const now = JSON.stringify(counts);
      if (now !== before) changed = performance.now();
      before = now;
      const patience = counts.waiting === 0 && !this.show.stage.broker ? lastPatienceMs : patienceMs;
      if (complete && performance.now() - changed > patience) {
        this.progress.note(`given up: nothing has changed for ${patience / 1_000} s`);
        return;
      }
      await pause(lookEveryMs, undefined, { signal: this.signal }).catch(() => {});
    }
    this.stopIfAsked();
  }

  private stopIfAsked(): void {
    if (this.signal.aborted) throw new DemoError('stopped before the end', 130);
  }
}

function describe(counts: Counts, show: Show): string {
  const { published, retried, dead } = counts;
  const workers = show.pool ? `, ${show.pool.size} workers, ${show.pool.kills} kills` : '';
  const { broker } = show.stage;
  const restarts = broker ? `, ${broker.restarts} restarts of nats-server` : '';
  return `${published} events published, ${retried} retries, ${dead} dead${workers}${restarts}`;
}
