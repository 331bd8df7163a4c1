import Table from 'cli-table3';
import { span } from '../../inspect/wording.js';

/**
 * What others wrote (an error, a subject, a name) may hold whatever moves the cursor or colours the screen of whoever
 * reads it. Line breaks stay.
 */
export function plain(text: string): string {
  return text.replaceAll(sequence, '').replaceAll(control, ' ');
}

// biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is taken out.
const sequence = /\u001b\[[0-?]*[ -/]*[@-~]/g;
// biome-ignore lint/suspicious/noControlCharactersInRegex: likewise; all but the line break.
const control = /[\u0000-\u0009\u000b-\u001f\u007f-\u009f]/g;

/** Its first line, cut at `most` characters. */
export function line(text: string | null, most = 72): string {
  const [first = ''] = plain(text ?? '').split('\n');
  return first.length > most ? `${first.slice(0, most - 1)}…` : first;
}

const bare = { top: '', 'top-mid': '', 'top-left': '', 'top-right': '', bottom: '', 'bottom-mid': '' } as const;
const none = { 'bottom-left': '', 'bottom-right': '', left: '', 'left-mid': '', mid: '', 'mid-mid': '' } as const;

/** Columns without lines, as other tools print them, so that grep and awk take them too. */
export function columns(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const table = new Table({
    head: [...head],
    chars: { ...bare, ...none, right: '', 'right-mid': '', middle: '  ' },
    style: { head: [], border: [], 'padding-left': 0, 'padding-right': 0 },
  });
  for (const row of rows) table.push(row.map((cell) => line(cell, 200)));
  return table
    .toString()
    .split('\n')
    .map((text) => text.trimEnd())
    .join('\n');
}

/** `2026-01-31 06:00:00Z`; empty for none. */
export function at(date: Date | null): string {
  return date === null ? '' : date.toISOString().replace('T', ' ').replace(/\.\d+/, '');
}

/** `5 min ago`, `in 2 h`, `now`; empty for none. */
export function away(date: Date | null, now: Date): string {
  if (date === null) return '';
  const ms = date.getTime() - now.getTime();
  if (Math.abs(ms) < 2_000) return 'now';
  return ms > 0 ? `in ${span(ms)}` : `${span(-ms)} ago`;
}

/** A count that was taken up to 10,001. */
export function upTo(count: number): string {
  return count > 10_000 ? '>10,000' : count.toLocaleString('en');
}

/** Paragraphs, those that have something to say. */
export function paragraphs(...parts: readonly string[]): string {
  return parts.filter((part) => part !== '').join('\n\n');
}
