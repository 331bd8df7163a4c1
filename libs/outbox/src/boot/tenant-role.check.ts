import type { RoleFacts } from '../tables/server-facts.js';
import { onPool } from './ask.js';
import { type BootCheck, works } from './boot-check.js';

/** Policies that do not hold for the role that handlers run as: each handler sees the rows of all tenants. */
export const tenantRoleCheck: BootCheck = {
  name: 'tenancy',
  run: async (context, warn) => {
    const { settings, database } = context;
    if (!works(settings)) return [];
    const [facts] = await onPool(context, (ask) => ask(database.facts.role()));
    if (facts && (facts.open !== null || (settings.tenancy && reason(facts) !== undefined))) warn(message(facts));
    return [];
  },
};

function reason({ superuser, bypass }: RoleFacts): string | undefined {
  if (superuser) return 'it is a superuser';
  return bypass ? 'it has BYPASSRLS' : undefined;
}

function message(facts: RoleFacts): string {
  const { role, open } = facts;
  const tables = open ? `the policies of ${open.join(', ')}` : 'policies';
  const remedy =
    'connect as a role that is neither a superuser nor has BYPASSRLS nor owns the tables (outboxSchema.grants gives it what a worker needs)';
  const forced = open ? `, or let the owner be bound, too: ALTER TABLE ${open[0]} FORCE ROW LEVEL SECURITY` : '';
  return reason(facts)
    ? `role '${role}' bypasses row-level security (${reason(facts)}): ${tables} do not hold in handlers, which see the rows of every tenant; ${remedy}`
    : `role '${role}' owns what it should be kept from: ${tables} do not hold in handlers, which see the rows of every tenant; ${remedy}${forced}`;
}
