/** A moment at which the clocks of a zone are put forward or back. Milliseconds. */
export interface ClockChange {
  readonly at: number;
  /** What the clock showed beyond UTC until then. */
  readonly before: number;
  /** What it shows from then on. */
  readonly after: number;
}

/** No zone has two changes within this; the closest are those around Ramadan, four weeks apart. */
const stepMs = 7 * 24 * 3_600_000;
/** No clock is put back by more than this (Antarctica/Troll: 2 hours). */
const longestRepeatMs = 3 * 3_600_000;

/** The clock on the wall in a time zone. */
export class ZoneClock {
  private readonly format: Intl.DateTimeFormat;

  /** Throws for a zone that is not known. */
  constructor(timeZone: string) {
    this.format = new Intl.DateTimeFormat('en-US', { timeZone, timeZoneName: 'longOffset' });
  }

  /** What the clock shows beyond UTC, in milliseconds. */
  offset(moment: number): number {
    const [, sign, hours, minutes, seconds = 0] =
      /GMT([+-])(\d\d):(\d\d)(?::(\d\d))?$/.exec(this.format.format(moment)) ?? [];
    const ms = (Number(hours ?? 0) * 3_600 + Number(minutes ?? 0) * 60 + Number(seconds)) * 1_000;
    return sign === '-' ? -ms : ms;
  }

  /** The first change after `from` that is not after `to`. */
  firstChange(from: number, to: number): ClockChange | undefined {
    const before = this.offset(from);
    for (let start = from; start < to; start += stepMs) {
      const end = Math.min(start + stepMs, to);
      if (this.offset(end) !== before) return this.changeIn(before, start, end);
    }
    return undefined;
  }

  /** What the clock will show when it has shown everything a second time that it showed before it was put back. */
  repeatsUntil(moment: number): number {
    const change = this.firstChange(moment - longestRepeatMs, moment);
    return change && change.before > change.after ? change.at + change.before : Number.NEGATIVE_INFINITY;
  }

  private changeIn(before: number, from: number, to: number): ClockChange {
    let start = from;
    let at = to;
    while (at - start > 1) {
      const middle = Math.floor((start + at) / 2);
      if (this.offset(middle) === before) start = middle;
      else at = middle;
    }
    return { at, before, after: this.offset(at) };
  }
}
