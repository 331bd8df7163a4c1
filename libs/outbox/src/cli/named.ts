import { didYouMean } from '../core/nearest.js';
import { isUuid } from '../core/uuid.js';
import type { DurableState, Durables } from '../index.js';
import { relayName } from '../tables/queue.table.js';
import { CliError, wrongUsage } from './cli-error.js';
import { exit } from './exit-codes.js';

export function eventId(text: string): string {
  if (!isUuid(text))
    throw wrongUsage(
      `'${text}' is no event id; npx nestjs-outbox why '${text}' finds an event by unique key or subject`,
    );
  return text.toLowerCase();
}

/** A name that nothing bears matches nothing, without a word: so a durable that is named has to be there. */
export async function knownDurable(durables: Durables, name: string): Promise<DurableState | undefined> {
  if (name === relayName) return undefined;
  const all = await durables.list();
  const found = all.find((durable) => durable.name === name);
  if (found) return found;
  const renamed = all.find(({ formerly }) => formerly.includes(name));
  throw new CliError(exit.problem, renamed ? `durable '${name}' is called '${renamed.name}' now` : unknown(name, all));
}

function unknown(name: string, all: readonly DurableState[]): string {
  const names = all.map((durable) => durable.name);
  const known = names.length === 0 ? 'no durable is registered' : `there are ${names.join(', ')}`;
  return `there is no durable '${name}'${didYouMean(name, names) || `: ${known}`}`;
}
