/**
 * The one list of what a database error means to us. Codes: PostgreSQL documentation, Appendix A.
 *
 * - *outage*: the server or the connection is gone, starting, stopping, full or read-only. Nothing is charged.
 * - *conflict*: serialization failure or deadlock; the same work may pass a moment later.
 * - *busy*: a lock was not to be had within the limit that we set ourselves.
 */
export type DatabaseTrouble = 'outage' | 'conflict' | 'busy' | 'other';

const outageCodes = new Set(['25006', '53300', '57P01', '57P02', '57P03', '57P05']);
const socketCodes = new Set([
  'ECONNREFUSED',
  'ECONNRESET',
  'EPIPE',
  'ETIMEDOUT',
  'ENOTFOUND',
  'EAI_AGAIN',
  'EHOSTUNREACH',
  'ENETUNREACH',
  'ENOENT',
  'ERR_STREAM_DESTROYED',
]);
/** node-postgres gives these no code; the texts are those of pg 8.21 to 8.23 and pg-pool 3. */
const outageTexts =
  /Connection terminated|Client has encountered a connection error|Client was closed|timeout exceeded when trying to connect|Connection ended unexpectedly|Query read timeout|Cannot use a pool after calling end/i;

export function databaseTrouble(error: unknown): DatabaseTrouble {
  const code = errorCode(error);
  if (code !== undefined) {
    if (code === '55P03') return 'busy';
    if (code === '40001' || code === '40P01') return 'conflict';
    // A pooler gives up on a client with it; the server means a query with the wrong number of parameters.
    if (code === '08P01') return property(error, 'severity') === 'FATAL' ? 'outage' : 'other';
    if (outageCodes.has(code) || code.startsWith('08') || socketCodes.has(code)) return 'outage';
  }
  return error instanceof Error && outageTexts.test(error.message) ? 'outage' : 'other';
}

/**
 * The SQLSTATE or system error code an error carries; TypeORM keeps the driver's own error one level down. What handlers
 * throw may refuse to be read (getters, proxies) or lead round in a circle: it then has no code.
 */
export function errorCode(error: unknown): string | undefined {
  return property(error, 'code');
}

function property(error: unknown, name: 'code' | 'severity'): string | undefined {
  try {
    return ownText(error, name) ?? ownText((error as { driverError?: unknown } | null | undefined)?.driverError, name);
  } catch {
    return undefined;
  }
}

function ownText(error: unknown, name: 'code' | 'severity'): string | undefined {
  const value = typeof error === 'object' && error !== null && (error as Partial<Record<typeof name, unknown>>)[name];
  return typeof value === 'string' ? value : undefined;
}
