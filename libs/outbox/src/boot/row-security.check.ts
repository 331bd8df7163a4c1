import { asEachRole } from './ask.js';
import { type BootCheck, works } from './boot-check.js';

/** Hidden rows make no error: the relay would find an empty queue, for ever. A publisher reads nothing and is not asked. */
export const rowSecurityCheck: BootCheck = {
  name: 'row-security',
  run: async (context) => {
    const { settings, database } = context;
    if (!works(settings)) return [];
    const hidden = await asEachRole(context, (ask) => ask(database.facts.hidden()));
    return [...new Set(hidden.map(({ role }) => role))].map((role) => {
      const tables = hidden.filter((row) => row.role === role).map(({ name }) => `${settings.schema}.${name}`);
      return {
        check: 'row-security',
        message: `row-level security on ${tables.join(', ')} may hide rows from role '${role}', and events in hidden rows are never relayed or handled; who may touch the outbox is said by grants (outboxSchema.grants), so let the owner run: ${tables.map((table) => `ALTER TABLE ${table} DISABLE ROW LEVEL SECURITY`).join('; ')}`,
      };
    });
  },
};
