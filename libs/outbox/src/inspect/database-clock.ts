import { span } from './wording.js';

/** Times for people, as the database's own tools would show them: its clock, and the time zone of its session. */
export class DatabaseClock {
  private readonly format: Intl.DateTimeFormat;

  constructor(
    private readonly nowMs: number,
    zone: string,
  ) {
    this.format = formatOf(zone);
  }

  /** `03:14:07`, with the date in front when it is of another day. */
  time(milliseconds: number): string {
    const { day, time } = this.parts(milliseconds);
    return day === this.parts(this.nowMs).day ? time : `${day} ${time}`;
  }

  /** `03:14:07 (6 min ago)`, `03:20:11 (in 6 min)`. */
  when(milliseconds: number): string {
    const length = span(Math.abs(this.nowMs - milliseconds));
    return `${this.time(milliseconds)} (${milliseconds > this.nowMs ? `in ${length}` : `${length} ago`})`;
  }

  /** `03:14:07 (6 min)`, of what has lasted since. */
  since(milliseconds: number): string {
    return `${this.time(milliseconds)} (${span(Math.max(0, this.nowMs - milliseconds))})`;
  }

  /** `03:14:07 Europe/Vienna`. */
  get now(): string {
    return `${this.parts(this.nowMs).time} ${this.format.resolvedOptions().timeZone}`;
  }

  private parts(milliseconds: number): { day: string; time: string } {
    const [day = '', time = ''] = this.format.format(milliseconds).split(', ');
    return { day, time };
  }
}

/** The server knows zones that JavaScript does not, such as abbreviations and `posixrules`. */
function formatOf(zone: string): Intl.DateTimeFormat {
  try {
    // In Canada dates are written as 2026-01-02.
    return new Intl.DateTimeFormat('en-CA', { ...fields, timeZone: zone });
  } catch {
    return new Intl.DateTimeFormat('en-CA', { ...fields, timeZone: 'UTC' });
  }
}

const fields: Intl.DateTimeFormatOptions = {
  year: 'numeric',
  month: '2-digit',
  day: '2-digit',
  hour: '2-digit',
  minute: '2-digit',
  second: '2-digit',
  hourCycle: 'h23',
};
