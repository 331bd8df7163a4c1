import type { Pause } from '../../index.js';
import { at, columns, line } from './text.js';

/** ` since …, until …, by …: why`. */
export function pauseWords({ since, until, by, reason }: Pause): string {
  const end = until === null ? 'until it is resumed' : `until ${at(until)}`;
  return `since ${at(since)}, ${end}${by === null ? '' : `, by ${line(by)}`}${reason === null ? '' : `: ${line(reason, 200)}`}`;
}

export function pausesTable(pauses: readonly Pause[]): string {
  if (pauses.length === 0) return '';
  const rows = pauses.map((pause) => [`${pause.kind} ${pause.name}`, pauseWords(pause)]);
  return columns(['PAUSED', ''], rows);
}

/** The command that ends it. */
export function resumeCommand({ kind, name }: Pick<Pause, 'kind' | 'name'>): string {
  return `npx nestjs-outbox resume ${kind === 'durable' ? name : `--${kind} '${name}'`}`;
}
