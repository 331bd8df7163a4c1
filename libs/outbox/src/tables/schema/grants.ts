import { SchemaError } from '../../outbox.errors.js';
import { type Actor, grantStatements, privilegesOf } from './privileges.js';
import { schemaNameProblem } from './schema-name.js';
import { newestVersion } from './schema-versions.js';

export interface GrantOptions {
  /** The version the schema is at, as in `up(queryRunner, { to })` just before. Default: the newest this library knows. */
  readonly to?: number;
  /** The schema's name. Default `outbox`. */
  readonly schema?: string;
  /** A role that publishes and can read no event: `forRoot({ role: 'publisher' })`. */
  readonly publisher?: string;
  /** A role that relays, handles and publishes: `forRoot({ role: 'worker' })` and `'all'`. */
  readonly worker?: string;
  /** A role that reads everything and changes nothing. */
  readonly operator?: string;
  /** A role that reads everything and may do all that `OutboxInspector`, `DeadLetters` and `Durables` do. */
  readonly retrier?: string;
}

const actors: readonly Actor[] = ['publisher', 'worker', 'operator', 'retrier'];

/**
 * The GRANT statements for roles that own nothing, to be sent one by one in a migration, after `outboxSchema.up` and with
 * the same `to`; each later version wants them again. Repeating them changes nothing. Nothing is granted that was not
 * asked for, and nothing is revoked.
 */
export function grants(options: GrantOptions): string[] {
  const { schema = 'outbox', to = newestVersion, ...roles } = options;
  const problem = schemaNameProblem(schema);
  if (problem) throw new SchemaError(problem);
  for (const [key, role] of Object.entries(roles)) {
    if (!actors.includes(key as Actor))
      throw new SchemaError(`outboxSchema.grants knows no '${key}'; it takes schema, to, ${actors.join(', ')}`);
    const wrong = role === undefined ? undefined : roleProblem(role);
    if (wrong) throw new SchemaError(`outboxSchema.grants: the role for '${key}' ${wrong}`);
  }
  return actors.flatMap((actor) => {
    const role = roles[actor];
    return role === undefined ? [] : grantStatements(schema, role, privilegesOf[actor], to);
  });
}

/** Postgres cuts longer names without a word, and the grant would go to another role. */
function roleProblem(role: unknown): string | undefined {
  if (typeof role !== 'string' || role === '') return 'must be the name of a database role';
  if (role.includes('\0')) return 'contains a NUL character';
  return Buffer.byteLength(role) > 63 ? 'is longer than the 63 bytes a name may have' : undefined;
}
