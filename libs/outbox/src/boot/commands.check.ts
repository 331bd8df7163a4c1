import type { BootProblem } from '../outbox.errors.js';
import { onPool } from './ask.js';
import { type BootCheck, works } from './boot-check.js';

/**
 * A command is meant for exactly one durable. What other processes handle is a fact of the fleet and gets a warning;
 * only a process that does everything (role `all`) is refused when nobody at all handles a command of its own.
 */
export const commandsCheck: BootCheck = {
  name: 'commands',
  run: async (context, warn) => {
    const { settings, database, catalog, registry } = context;
    const types = catalog.commands.map(({ type }) => type);
    if (!works(settings) || types.length === 0) return [];
    const standing = await onPool(context, (ask) => ask(database.facts.durablesOf(types)));
    const problems: BootProblem[] = [];
    for (const type of types) {
      const renamed = registry.all.flatMap(({ formerly }) => formerly);
      const elsewhere = standing
        .filter((row) => row.type === type && !renamed.includes(row.name))
        .map(({ name }) => name);
      const here = registry.all.filter(({ types: own }) => own.some(({ pattern }) => pattern === type));
      const durables = [...new Set([...elsewhere, ...here.map(({ durable }) => durable)])].toSorted();
      if (durables.length > 1) warn(tooMany(type, durables));
      if (durables.length > 0) continue;
      if (settings.role === 'all') problems.push({ check: 'commands', message: none(type) });
      else warn(none(type));
    }
    return problems;
  },
};

function tooMany(type: string, durables: readonly string[]): string {
  return `command '${type}' is handled by ${durables.length} durables (${durables.join(', ')}), so it is carried out ${durables.length} times; keep one of them and retire the others, or define it with defineEvent if all are meant`;
}

function none(type: string): string {
  return `command '${type}' has no handler, in this app or registered in the database: add a method with @Subscribe('${type}', …), or set role: 'publisher' (or 'worker') if another app is to carry it out`;
}
