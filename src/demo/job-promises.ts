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

/** Compares what the jobs wrote with what the library promises of them. */
export function judgeJobs(lines: readonly JobLogLine[], cast: Cast): JobReport {
  const ticks: Record<string, number> = {};
  const runs: Record<string, number> = {};
  const broken: string[] = [];
  const awaited: string[] = [];
  for (const [job, kind] of Object.entries(jobKinds)) {
    const own = lines.filter((line) => line.job === job);
    const done = own.filter(({ ended }) => ended);
    ticks[job] = grouped(done, slotOf).size;
    runs[job] = grouped(done, kind === 'all' ? (line) => `${slotOf(line)} ${line.worker}` : runOf).size;
    if (ticks[job] < leastTicks) awaited.push(`${job} has run for ${ticks[job]} slots, ${leastTicks} are to be seen`);
    const judged = kind === 'all' ? beats(own, cast) : slots(own, kind, cast);
    broken.push(...judged.broken.map((words) => `${job}: ${words}`));
    awaited.push(...judged.awaited.map((words) => `${job}: ${words}`));
  }
  return { ticks, runs, broken, awaited };
}

type Judged = Pick<JobReport, 'broken' | 'awaited'>;

/** A job with one runner: every slot that was begun is run to its end, and no two runs at a time. */
function slots(lines: readonly JobLogLine[], kind: 'one' | 'tenants', { tenants, killed }: Cast): Judged {
  const broken = together(lines);
  const awaited: string[] = [];
  for (const [slot, ofSlot] of grouped(lines, slotOf))
    for (const tenant of kind === 'tenants' ? tenants : [null]) {
      const own = ofSlot.filter((line) => line.tenant === tenant);
      const done = own.filter(({ ended }) => ended);
      const failed = own.filter(({ error }) => error !== null);
      const which = `slot ${slot}${tenant === null ? '' : `, tenant ${tenant}`}`;
      if (tenant === failingTenant) {
        if (done.length > 0) broken.push(`${which} did not fail`);
        else if (failed.length === 0) awaited.push(`${which} has not failed yet`);
        continue;
      }
      for (const { error } of failed) broken.push(`${which} failed: ${error}`);
      if (done.length === 0) awaited.push(`${which} was begun and is not at its end`);
      // Only death between the end of the work and its record excuses that a slot is run again, and never a tenant's part.
      const again = byEnd(done).slice(0, -1);
      if (again.some(({ worker }) => tenant !== null || !killed.has(worker)))
        broken.push(`${which} was run ${done.length} times`);
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
      const own = lines.filter((line) => line.worker === worker && line.ended);
      const last = Math.max(...own.map(({ began }) => began.getTime()));
      return own.length < leastTicks || last < at.getTime() - silentMs;
    })
    .map((worker) => `process ${worker} lives and does not beat`);
  return { broken, awaited };
}

/** Runs that began before another one had ended. One that was cut off counts as long as it is known to have lasted. */
function together(lines: readonly JobLogLine[]): string[] {
  const runs = [...grouped(lines, runOf)].map(([name, own]) => ({
    name,
    began: Math.min(...own.map(({ began }) => began.getTime())),
    ended: Math.max(...own.map(({ began, ended }) => (ended ?? began).getTime())),
  }));
  runs.sort((a, b) => a.began - b.began);
  const broken: string[] = [];
  let before = runs[0];
  for (const run of runs.slice(1)) {
    if (before && run.began < before.ended) broken.push(`${run.name} began before ${before.name} had ended`);
    if (!before || run.ended > before.ended) before = run;
  }
  return broken;
}

function byEnd(lines: readonly JobLogLine[]): JobLogLine[] {
  return [...lines].sort((a, b) => (a.ended?.getTime() ?? 0) - (b.ended?.getTime() ?? 0));
}

function slotOf({ slot }: JobLogLine): string {
  return slot.toISOString();
}

function runOf(line: JobLogLine): string {
  return `slot ${slotOf(line)}, attempt ${line.attempt}`;
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
