import type { ClientBase, Connection, Submittable } from 'pg';
import type { Bound } from './statement.js';

export interface BatchResult<Row> {
  /** The command tag: `COMMIT`, `ROLLBACK`, `INSERT` … This, and not a promise that resolved, proves a COMMIT. */
  readonly command: string;
  readonly rows: readonly Row[];
  readonly rowCount: number;
}

export type BatchResults<S extends readonly Bound[]> = {
  -readonly [K in keyof S]: S[K] extends Bound<infer Row> ? BatchResult<Row> : never;
};

/** An error of a batch says which statement met it; the server skipped those after it. */
export interface BatchError extends Error {
  statement?: number;
  readonly code?: string;
}

/**
 * Sends several prepared statements as one message with one Sync: one round trip, and outside a transaction block one
 * implicit transaction. Each statement still takes its own snapshot. (`pipeline: true` of node-postgres puts a Sync
 * after each, so that what follows a failed claim would be tried too.)
 */
export function sendBatch<const S extends readonly Bound[]>(
  client: ClientBase,
  statements: S,
  /** Asked at the moment of sending, when all that was sent before has been answered: what it returns is thrown instead. */
  refuse?: () => Error | undefined,
): Promise<BatchResults<S>> {
  return new Promise((resolve, reject) => {
    client.query(
      new Batch(
        statements,
        (error, results) => (error ? reject(error) : resolve(results as unknown as BatchResults<S>)),
        refuse,
      ),
    );
  });
}

export async function sendOne<Row>(
  client: ClientBase,
  bound: Bound<Row>,
  refuse?: () => Error | undefined,
): Promise<BatchResult<Row>> {
  const [result] = await sendBatch(client, [bound], refuse);
  return result;
}

/** What node-postgres keeps on a connection and its types leave out: the names it believes to be prepared. */
interface PreparedNames {
  parsedStatements: Record<string, string | undefined>;
}

const unprepared = Symbol('nestjs-outbox: no names');
interface Unprepared {
  [unprepared]?: boolean;
}

/**
 * Whether statements go to this connection under names from here on: behind a transaction pooler that does not follow
 * prepared statements, the session that knows a name is not the one that is asked next.
 */
export function useNames(client: ClientBase, use: boolean): void {
  const { connection } = client as ClientBase & { connection?: Unprepared };
  if (connection) connection[unprepared] = !use;
}

/**
 * A prepared statement is gone (26000: DISCARD ALL or DEALLOCATE ALL by others on this connection) or no longer fits its
 * tables (0A000: "cached plan must not change result type"). Not forgotten, it would fail on this connection for ever.
 */
const staleCodes: ReadonlySet<string> = new Set(['26000', '0A000']);

class Batch implements Submittable {
  private readonly results: BatchResult<unknown>[] = [];
  private fields: readonly FieldDescription[] = [];
  private rows: Record<string, unknown>[] = [];
  private fresh: string[] = [];
  private connection: Connection | undefined;

  constructor(
    private readonly statements: readonly Bound[],
    // node-postgres calls and replaces it under this name (query_timeout does).
    public callback: (error: BatchError | null, results: readonly BatchResult<unknown>[]) => void,
    private readonly refuse?: () => Error | undefined,
  ) {}

  submit(connection: Connection): Error | undefined {
    const refused = this.refuse?.();
    if (refused) return refused;
    this.connection = connection;
    connection.stream.cork();
    try {
      for (const bound of this.statements) this.send(connection, bound);
      connection.sync();
    } finally {
      connection.stream.uncork();
    }
    return undefined;
  }

  private send(connection: Connection, bound: Bound): void {
    if ((connection as Connection & Unprepared)[unprepared]) {
      connection.parse({ name: '', text: bound.text, types: [] }, true);
      this.execute(connection, bound, '');
      return;
    }
    const names = (connection as Connection & PreparedNames).parsedStatements;
    if (names[bound.name] === undefined) {
      // After an error it is unknown which Parse got through; closing a name is harmless when it is absent.
      connection.close({ type: 'S', name: bound.name }, true);
      connection.parse({ name: bound.name, text: bound.text, types: [] }, true);
      names[bound.name] = bound.text;
      this.fresh.push(bound.name);
    }
    this.execute(connection, bound, bound.name);
  }

  private execute(connection: Connection, bound: Bound, statement: string): void {
    connection.bind({ portal: '', statement, values: [...bound.values], binary: '' }, true);
    if (!bound.rowless) connection.describe({ type: 'P', name: '' }, true);
    connection.execute({ portal: '', rows: '' }, true);
  }

  handleRowDescription(message: { fields: readonly FieldDescription[] }): void {
    this.fields = message.fields;
  }

  handleDataRow(message: { fields: readonly (string | null)[] }): void {
    const row: Record<string, unknown> = {};
    let i = 0;
    for (const field of this.fields) row[field.name] = decode(field.dataTypeID, message.fields[i++]);
    this.rows.push(row);
  }

  handleCommandComplete(message: { text: string }): void {
    const [command = '', ...counts] = message.text.split(' ');
    this.results.push({ command, rows: this.rows, rowCount: Number(counts.at(-1) ?? 0) });
    this.rows = [];
  }

  handleEmptyQuery(): void {}

  handlePortalSuspended(): void {}

  handleError(error: BatchError): void {
    error.statement = this.results.length;
    this.forget(staleCodes.has(error.code ?? '') ? this.statements.map(({ name }) => name) : this.fresh);
    this.settle(error);
  }

  handleReadyForQuery(): void {
    this.settle(null);
  }

  private forget(names: readonly string[]): void {
    if (!this.connection) return;
    const { parsedStatements } = this.connection as Connection & PreparedNames;
    for (const name of names) delete parsedStatements[name];
    this.fresh = [];
  }

  private settle(error: BatchError | null): void {
    const callback = this.callback;
    this.callback = () => {};
    callback(error, this.results);
  }
}

interface FieldDescription {
  readonly name: string;
  readonly dataTypeID: number;
}

/**
 * Reads a value of our own statements. Not node-postgres' parsers: an application may replace those for the whole
 * process, and the library must not read its own tables differently because of it.
 */
function decode(oid: number, text: string | null | undefined): unknown {
  if (text === null || text === undefined) return null;
  switch (oid) {
    case 16: // bool
      return text === 't';
    case 20: // int8: counts and epoch milliseconds, all below 2^53
    case 21: // int2
    case 23: // int4
      return Number(text);
    case 114: // json
    case 3802: // jsonb
      return JSON.parse(text);
    default:
      return text;
  }
}
