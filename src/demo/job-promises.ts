/** A line of `demo.job_log`, as the job itself wrote it. */
export interface JobLogLine {
  readonly job: string;
  readonly slot: Date;
  readonly attempt: number;
  readonly tenant: string | null;
  readonly worker: string;
  readonly began: Date;
  readonly ended: Date | null;
  readonly error: string | null;
}

/** Who took part, besides the lines. */
export interface Cast {
  readonly tenants: readonly string[];
  /** Processes that were killed. */
  readonly killed: ReadonlySet<string>;
  /** Processes that live, and the moment of that. */
  readonly living: readonly string[];
  readonly at: Date;
}

export interface JobReport {
  /** Slots that were run to their end, per job. */
  readonly ticks: Readonly<Record<string, number>>;
  /** Runs that did their work, per job: of a job per tenant, attempts that did it for a tenant at least. */
  readonly runs: Readonly<Record<string, number>>;
  /** What cannot be mended by waiting. */
  readonly broken: readonly string[];
  /** What is not there yet. */
  readonly awaited: readonly string[];
}

/** `one`: on one process, at least once for each slot. `tenants`: there exactly once for each tenant. `all`: on every process. */
export const jobKinds: Readonly<Record<string, 'one' | 'tenants' | 'all'>> = {
  'audit.retention': 'one',
  'auth.sweep': 'one',
  'billing.renew': 'tenants',
  'file.sweep': 'one',
  heartbeat: 'all',
};

/** The tenant whose renewal fails on purpose. */
export const failingTenant = 'initech';
const leastTicks = 2;
/** A beat a second; a machine that is busy may be late with a few. */
const silentMs = 5_000;

/** Compares what the jobs wrote, in the order in which they did, with what the library promises of them. */
export function judgeJobs(lines: readonly JobLogLine[], cast: Cast): JobReport {
  const ticks: Record<string, number> = {};
  const runs: Record<string, number> = {};
  const broken: string[] = [];
  const awaited: string[] = [];
  const dead = deaths(lines, cast);
  for (const [job, kind] of Object.entries(jobKinds)) {
    const own = lines.filter((line) => line.job === job);
    const done = own.filter(isDone);
    ticks[job] = grouped(done, slotOf).size;
    runs[job] = grouped(done, runOf).size;
    if (ticks[job] < leastTicks) awaited.push(`${job} has run for ${ticks[job]} slots, ${leastTicks} are to be seen`);
    const judged = kind === 'all' ? beats(own, cast) : slots(own, kind, cast.tenants, dead);
    broken.push(...judged.broken.map((words) => `${job}: ${words}`));
    awaited.push(...judged.awaited.map((words) => `${job}: ${words}`));
  }
  return { ticks, runs, broken, awaited };
}

type Judged = Pick<JobReport, 'broken' | 'awaited'>;
/** Whether a process was dead at a moment. */
type Deaths = (worker: string | undefined, at: Date) => boolean;

/** A job with one runner: every slot that was begun is run to its end, and no two runs at a time. */
function slots(
  lines: readonly JobLogLine[],
  kind: 'one' | 'tenants',
  tenants: readonly string[],
  dead: Deaths,
): Judged {
  const broken = together(lines, dead);
  const awaited: string[] = [];
  for (const [slot, ofSlot] of grouped(lines, slotOf))
    for (const tenant of kind === 'tenants' ? tenants : [null]) {
      const own = ofSlot.filter((line) => line.tenant === tenant);
      const good = own.filter(isDone);
      const failed = own.filter(({ error }) => error !== null);
      const which = `slot ${slot}${tenant === null ? '' : `, tenant ${tenant}`}`;
      if (tenant === failingTenant) {
        if (good.length > 0) broken.push(`${which} did not fail`);
        else if (failed.length === 0) awaited.push(`${which} has not failed yet`);
        continue;
      }
      for (const { error } of failed) broken.push(`${which} failed: ${error}`);
      if (good.length === 0) awaited.push(`${which} was begun and is not at its end`);
      // Only death between the end of the work and its record excuses that a slot is run again, and never a tenant's part.
      const excused = good.slice(1).every(({ began }, i) => tenant === null && dead(good[i]?.worker, began));
      if (!excused) broken.push(`${which} was run ${good.length} times`);
    }
  return { broken, awaited };
}

/** A job that runs everywhere: once a slot in each process, and in every process that lives. */
function beats(lines: readonly JobLogLine[], { living, at }: Cast): Judged {
  const broken = [...grouped(lines, (line) => `slot ${slotOf(line)}, process ${line.worker}`)]
    .filter(([, own]) => own.length > 1)
    .map(([which, own]) => `${which} was run ${own.length} times`);
  const awaited = living
    .filter((worker) => {
      const own = lines.filter((line) => line.worker === worker && isDone(line));
      const last = Math.max(...own.map(({ began }) => began.getTime()));
      return own.length < leastTicks || last < at.getTime() - silentMs;
    })
    .map((worker) => `process ${worker} lives and does not beat`);
  return { broken, awaited };
}

/** Runs that began before another one had ended, or while it lay unfinished in a process that lived. */
function together(lines: readonly JobLogLine[], dead: Deaths): string[] {
  const broken: string[] = [];
  let before: JobLogLine[] | undefined;
  // In the order in which they began, as the lines are.
  for (const run of grouped(lines, runOf).values()) {
    const [first] = run;
    if (!first) continue;
    const beside = before?.some(({ ended, worker }) => (ended ? ended > first.began : !dead(worker, first.began)));
    if (beside) broken.push(`slot ${slotOf(first)} was begun by ${first.worker} before the run before it had ended`);
    before = run;
  }
  return broken;
}

/** A process that was killed is dead from its last line on: its heart beats every second. */
function deaths(lines: readonly JobLogLine[], { killed }: Cast): Deaths {
  const last = new Map<string, number>();
  for (const { worker, began } of lines) last.set(worker, Math.max(began.getTime(), last.get(worker) ?? 0));
  return (worker = '', at) => killed.has(worker) && (last.get(worker) ?? 0) < at.getTime();
}

function slotOf({ slot }: JobLogLine): string {
  return slot.toISOString();
}

function runOf(line: JobLogLine): string {
  return `${slotOf(line)} ${line.attempt} ${line.worker}`;
}

function isDone({ ended, error }: JobLogLine): boolean {
  return ended !== null && error === null;
}

function grouped(lines: readonly JobLogLine[], keyOf: (line: JobLogLine) => string): Map<string, JobLogLine[]> {
  const groups = new Map<string, JobLogLine[]>();
  for (const line of lines) {
    const key = keyOf(line);
    const group = groups.get(key);
    if (group) group.push(line);
    else groups.set(key, [line]);
  }
  return groups;
}
