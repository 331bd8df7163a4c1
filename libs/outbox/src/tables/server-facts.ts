import type { Privilege } from './schema/privileges.js';
import { type Bound, inSchema, type Statement, statement } from './wire/statement.js';

export interface SchemaFacts {
  readonly role: string;
  /** `schema_version` is there. */
  readonly here: boolean;
  /** The role may use the schema and read the version. */
  readonly readable: boolean;
}

export interface RoleFacts {
  readonly role: string;
  readonly superuser: boolean;
  readonly bypass: boolean;
  /** Tables with policies about the tenant that do not hold for this role; null: none. */
  readonly open: readonly string[] | null;
}

export interface StrayDurable {
  readonly id: number;
  readonly name: string;
  readonly state: string;
  readonly seen: string | null;
  /** Counted up to 10,001. */
  readonly waiting: number;
}

/** What the boot gate asks the server: about the connection's role, its rights, and what the database holds. */
export class ServerFacts {
  /** No parameters. Two connections with the same answer are in the same database of the same server. */
  readonly place = statement<{ role: string; place: string }>('place', placeSql);
  readonly schema: () => Bound<SchemaFacts>;
  /** Tables of the outbox whose policies may hide rows from this role. */
  readonly hidden: () => Bound<{ role: string; name: string }>;
  /** No parameters. */
  readonly role = statement<RoleFacts>('role', roleSql);
  /** No parameters. Milliseconds since 1970. */
  readonly clock = statement<{ now: number }>(
    'clock',
    'SELECT (extract(epoch FROM clock_timestamp()) * 1000)::float8 AS now',
  );
  /** Parameters: the durables of this app. Those without code here, and those of this app that were switched off. */
  readonly strayDurables: Statement<StrayDurable>;
  /** Parameters: types. Active durables that cover one of them by its name, not by a pattern. */
  readonly durablesOf: Statement<{ type: string; name: string }>;
  /** Parameters: names. Active durables that bear one of them. */
  readonly named: Statement<{ name: string }>;
  private readonly missing: Statement<{ role: string; need: number; name: string; privilege: string }>;

  constructor(private readonly name: string) {
    const schema = statement<SchemaFacts>('schema_facts', schemaSql);
    const hidden = statement<{ role: string; name: string }>('hidden', hiddenSql);
    this.schema = () => schema(name);
    this.hidden = () => hidden(name);
    this.missing = statement('missing', missingSql);
    this.durablesOf = statement('durables_of', inSchema(name, durablesOfSql));
    this.named = statement(
      'durables_named',
      inSchema(
        name,
        "SELECT name FROM outbox.durables WHERE name = ANY ($1::text[]) AND state = 'active' ORDER BY name",
      ),
    );
    this.strayDurables = statement('stray_durables', inSchema(name, strayDurablesSql));
  }

  /** Which of `needs` this role has not; `need` is the place in the list. */
  lacking(needs: readonly Privilege[]): Bound<{ role: string; need: number; name: string; privilege: string }> {
    const rows = needs.flatMap(({ kind, names, privileges, columns }, need) =>
      names.flatMap((name) =>
        privileges.map((privilege) => ({ need, kind, name, privilege, columns: columns?.join(' ') ?? '' })),
      ),
    );
    const column = <K extends keyof (typeof rows)[number]>(key: K) => rows.map((row) => row[key]);
    return this.missing(
      this.name,
      column('need'),
      column('kind'),
      column('name'),
      column('privilege'),
      column('columns'),
    );
  }
}

const placeSql = `SELECT current_user::text AS role, current_database() || ' ' || pg_postmaster_start_time()::text AS place`;

/** From the catalog alone: to_regclass fails where the role may not use the schema. Parameters: schema. */
const schemaSql = `
SELECT current_user::text AS role, c.oid IS NOT NULL AS here,
       c.oid IS NOT NULL AND has_schema_privilege(n.oid, 'USAGE') AND has_column_privilege(c.oid, 'version', 'SELECT')
         AND has_column_privilege(c.oid, 'min_library', 'SELECT') AS readable
FROM (SELECT $1::text AS name) s LEFT JOIN pg_namespace n ON n.nspname = s.name
LEFT JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = 'schema_version'`;

/** Parameters: schema; then for each need its place, kind, name, privilege, and columns separated by blanks. */
const missingSql = `
SELECT current_user::text AS role, w.need, w.name, w.privilege
FROM unnest($2::int[], $3::text[], $4::text[], $5::text[], $6::text[]) WITH ORDINALITY w(need, kind, name, privilege, cols, n)
JOIN pg_namespace s ON s.nspname = $1::text
WHERE NOT coalesce(CASE w.kind
  WHEN 'FUNCTION' THEN (SELECT bool_and(has_function_privilege(p.oid, w.privilege)) FROM pg_proc p WHERE p.pronamespace = s.oid AND p.proname = w.name)
  WHEN 'SEQUENCE' THEN (SELECT has_sequence_privilege(c.oid, w.privilege) FROM pg_class c WHERE c.relnamespace = s.oid AND c.relname = w.name AND c.relkind = 'S')
  ELSE (SELECT has_table_privilege(c.oid, w.privilege) OR (w.cols <> '' AND
          (SELECT bool_and(has_column_privilege(c.oid, a, w.privilege)) FROM unnest(string_to_array(w.cols, ' ')) a))
        FROM pg_class c WHERE c.relnamespace = s.oid AND c.relname = w.name AND c.relkind IN ('r', 'p'))
  END, false)
ORDER BY w.n`;

/** A policy of the role's own that lets everything through hides nothing. Parameters: schema. */
const hiddenSql = `
SELECT current_user::text AS role, c.relname::text AS name FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = $1::text AND c.relkind IN ('r', 'p') AND row_security_active(c.oid)
  AND NOT (NOT EXISTS (SELECT 1 FROM pg_policy p WHERE p.polrelid = c.oid AND NOT p.polpermissive)
    AND EXISTS (SELECT 1 FROM pg_policy p WHERE p.polrelid = c.oid AND p.polcmd = '*' AND pg_get_expr(p.polqual, p.polrelid) = 'true'
      AND EXISTS (SELECT 1 FROM unnest(p.polroles) r WHERE CASE WHEN r = 0 THEN true ELSE pg_has_role(r, 'USAGE') END)))
ORDER BY 2`;

const roleSql = `
SELECT current_user::text AS role, r.rolsuper AS superuser, r.rolbypassrls AS bypass,
  (SELECT json_agg(t.name ORDER BY t.name) FROM (SELECT DISTINCT p.polrelid::regclass::text AS name FROM pg_policy p JOIN pg_class c ON c.oid = p.polrelid
     WHERE c.relrowsecurity AND NOT row_security_active(c.oid)
       AND concat(pg_get_expr(p.polqual, p.polrelid), pg_get_expr(p.polwithcheck, p.polrelid)) LIKE '%app.tenant\\_id%' LIMIT 10) t) AS open
FROM pg_roles r WHERE r.rolname = current_user`;

/** By the index of waiting rows; those that run, or must run alone, are few. */
const strayDurablesSql = `
SELECT d.id, d.name, d.state, d.seen_at::date::text AS seen, (SELECT count(*)::int FROM (SELECT 1 FROM outbox.deliveries x
    WHERE x.durable = d.id AND x.lease IS NULL AND x.interruptions < 3 LIMIT 10001) y) AS waiting
FROM outbox.durables d WHERE (d.name = ANY ($1::text[])) = (d.state <> 'active') ORDER BY d.name`;

const durablesOfSql = `
SELECT t.pattern AS type, d.name FROM outbox.durable_types t JOIN outbox.durables d ON d.id = t.durable
WHERE t.pattern = ANY ($1::text[]) AND t.ended_at IS NULL AND d.state = 'active' ORDER BY 1, 2`;
