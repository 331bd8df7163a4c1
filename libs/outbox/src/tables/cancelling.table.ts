import { inSchema, type Statement, statement } from './wire/statement.js';

export interface CancelledRow {
  readonly cancelled: number;
  readonly too_late: number;
}

export interface AuditedCancelRow extends CancelledRow {
  /** The events of what was too late. */
  readonly late: readonly string[] | null;
}

/** The three ways to name what is to be cancelled, as one statement each. */
export interface CancelStatements<Row> {
  /** Parameters: id. */
  readonly byId: Statement<Row>;
  /** Parameters: tenant or null, type, key. */
  readonly byUnique: Statement<Row>;
  /** Parameters: tenant or null, type, subject. */
  readonly bySubject: Statement<Row>;
}

/** The functions `cancel…` of the schema, which do the work: a publisher may read nothing of what they look at. */
export class CancellingTable {
  /** In the transaction of whoever cancels. No tenant: the current one. */
  readonly plain: CancelStatements<CancelledRow>;
  /**
   * The operator's: with a row of `audit`, and with the word to all workers, when asked for, in the one statement that
   * does it; NOTIFY goes out when that has committed. No tenant: none. Further parameters: who, what as JSON, why, whether to abort.
   */
  readonly audited: CancelStatements<AuditedCancelRow>;

  constructor(schema: string, channel: string) {
    const every = <Row>(
      name: string,
      tenant: string,
      sql: (call: string, next: number) => string,
    ): CancelStatements<Row> => {
      const one = (kind: string, call: string, next: number): Statement<Row> =>
        statement<Row>(`${name}_${kind}`, inSchema(schema, sql(call, next)));
      return {
        byId: one('id', 'outbox.cancel($1::uuid)', 2),
        byUnique: one('unique', `outbox.cancel_unique(${tenant}, $2::text, 'k' || $3::text)`, 4),
        bySubject: one('subject', `outbox.cancel_subject(${tenant}, $2::text, $3::text)`, 4),
      };
    };
    this.plain = every('cancel', currentTenant, (call) => `SELECT cancelled, too_late FROM ${call}`);
    this.audited = every('cancel_audited', '$1::text', (call, next) => auditedSql(call, next, channel));
  }
}

/** As publishing has it: what the caller says, or the transaction, or none. */
const currentTenant = `coalesce($1::text, NULLIF(current_setting('app.tenant_id', true), ''))`;

/** What came of it is part of what was done. `cancel <event id>`: see `ListenerService`. */
const auditedSql = (call: string, next: number, channel: string): string => `
WITH c AS MATERIALIZED (SELECT cancelled, too_late, late FROM ${call}),
a AS (INSERT INTO outbox.audit (who, action, what, why) SELECT $${next}::text, 'cancel',
      $${next + 1}::jsonb || jsonb_build_object('cancelled', c.cancelled, 'tooLate', c.too_late), $${next + 2}::text FROM c)
SELECT cancelled, too_late, (SELECT json_agg(l.id) FROM unnest(late) l(id)) AS late,
  (SELECT count(pg_notify('${channel}', 'cancel ' || l.id)) FROM unnest(late) l(id) WHERE $${next + 3}::boolean)::int AS told FROM c`;
