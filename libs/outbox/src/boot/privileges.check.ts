import type { BootProblem } from '../outbox.errors.js';
import { grantStatements, objectList, type Privilege, privilegesOf, quoted } from '../tables/schema/privileges.js';
import { asEachRole } from './ask.js';
import { type BootCheck, works } from './boot-check.js';

/** Found at the first event otherwise, deep in a log. One problem for each kind of object, with the GRANT that cures it. */
export const privilegesCheck: BootCheck = {
  name: 'privileges',
  run: async (context) => {
    const { settings, database } = context;
    const actor = works(settings) ? 'worker' : 'publisher';
    const needs = privilegesOf[actor];
    const look = (need: number, role: string, privileges: readonly string[]): BootProblem => {
      const { columns, ...rest } = needs[need] as Privilege;
      return problem(settings.schema, role, actor, { ...rest, privileges, ...(columns ? { columns } : {}) });
    };
    const lacking = await asEachRole(context, (ask) => ask(database.facts.lacking(needs)));
    const byNeed = new Map<string, { need: number; role: string; privileges: Set<string> }>();
    for (const { need, role, privilege } of lacking) {
      const key = `${need} ${role}`;
      const entry = byNeed.get(key) ?? { need, role, privileges: new Set<string>() };
      byNeed.set(key, entry);
      entry.privileges.add(privilege);
    }
    return [...byNeed.values()].map(({ need, role, privileges }) => look(need, role, [...privileges]));
  },
};

function problem(schema: string, role: string, actor: 'publisher' | 'worker', need: Privilege): BootProblem {
  const [, grant] = grantStatements(schema, role, [need]);
  const named = schema === 'outbox' ? '' : `schema: '${schema}', `;
  return {
    check: 'privileges',
    message: `role ${quoted(role)} lacks ${need.privileges.join(', ')} on ${objectNames(schema, need)}, which a ${actor} needs; let the owner of the schema run: ${grant} (everything at once: outboxSchema.grants({ ${named}${actor}: '${role}' }) in a migration)`,
  };
}

/** `outbox.events_0 to outbox.events_9`, where a list of ten would hide the point. */
function objectNames(schema: string, need: Privilege): string {
  const { names } = need;
  if (names.length < 4) return objectList(schema, need);
  return `${schema}.${names[0]} to ${schema}.${names.at(-1)}`;
}
