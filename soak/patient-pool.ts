import { setTimeout as pause } from 'node:timers/promises';
import { Pool, type QueryResultRow } from 'pg';

/** Asks until it is answered: the server may be away, and sessions are ended. For what may be said twice. */
export class PatientPool {
  private readonly pool: Pool;

  constructor(url: string, application: string) {
    this.pool = new Pool({ connectionString: url, application_name: application, max: 2 });
    this.pool.on('error', () => {});
  }

  async rows<Row extends QueryResultRow>(sql: string, values: unknown[] = [], signal?: AbortSignal): Promise<Row[]> {
    const until = performance.now() + patienceMs;
    for (;;) {
      try {
        return (await this.pool.query<Row>(sql, values)).rows;
      } catch (error) {
        if (signal?.aborted || performance.now() > until || !isOutage(error)) throw error;
        await pause(50);
      }
    }
  }

  close(): Promise<void> {
    return this.pool.end();
  }
}

const patienceMs = 60_000;

/** No SQLSTATE at all: the connection; otherwise 57P0x, 08xxx, 53300. */
function isOutage(error: unknown): boolean {
  const code = String((error as { code?: unknown }).code ?? '');
  return !/^[0-9A-Z]{5}$/.test(code) || /^(57P0|08|53300)/.test(code);
}
