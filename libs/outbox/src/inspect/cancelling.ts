import type { CancelCalls } from '../core/cancel-calls.js';
import type { Cancelled } from '../core/cancelled.js';
import { isStorable } from '../core/storable.js';
import { isUuid } from '../core/uuid.js';
import { InvalidCancelError } from '../outbox.inspect-errors.js';
import type { AuditedCancelRow } from '../tables/cancelling.table.js';
import type { Database } from '../tables/database.js';
import type { Bound } from '../tables/wire/statement.js';
import { type ActionOptions, actorOf } from './audit.js';

/** What is to be cancelled: an event by its id or its unique key, or all of a type about a subject. No tenant: of none. */
export type CancelQuery =
  | { readonly id: string }
  | { readonly event: string; readonly unique: string; readonly tenantId?: string }
  | { readonly event: string; readonly subject: string; readonly tenantId?: string };

export interface CancelOptions extends ActionOptions {
  /**
   * Also aborts the signal of handlers that run it now, in all processes. Those count as too late: one that then throws
   * ends as cancelled, one that returns has handled it. Default false.
   */
  readonly abort?: boolean;
}

/** The operator's cancel: in a transaction of its own, and in the audit. */
export class Canceller {
  constructor(
    private readonly database: Database,
    private readonly cancels: CancelCalls,
    /** Who it was, unless somebody says. */
    private readonly app: string,
  ) {}

  async cancel(query: CancelQuery, options: CancelOptions = {}): Promise<Cancelled> {
    const [{ rows }] = await this.database.onPool(this.statement(query, options));
    const [row] = rows;
    if (!row) throw new Error('the cancelling statement returned no row');
    // This process has no listener when it is the only one; when it has, the second call changes nothing.
    if (options.abort) for (const eventId of row.late ?? []) this.cancels.call(eventId);
    return { cancelled: row.cancelled, tooLate: row.too_late };
  }

  private statement(query: CancelQuery, { abort, ...options }: CancelOptions): Bound<AuditedCancelRow> {
    const { byId, byUnique, bySubject } = this.database.cancelling.audited;
    const { by, reason } = actorOf(options, this.app);
    for (const [path, text] of Object.entries(query)) {
      if (text !== undefined && !(typeof text === 'string' && isStorable(text)))
        throw new InvalidCancelError(path, 'must be a text without NUL and half characters');
    }
    const rest = [by, JSON.stringify(query), reason, String(abort ?? false)] as const;
    if ('id' in query) {
      if (!isUuid(query.id)) throw new InvalidCancelError('id', `'${query.id}' is not the id of an event`);
      return byId(query.id, ...rest);
    }
    const tenant = query.tenantId ?? null;
    if ('unique' in query) return byUnique(tenant, query.event, query.unique, ...rest);
    return bySubject(tenant, query.event, query.subject, ...rest);
  }
}
