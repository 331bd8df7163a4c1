import { randomBytes } from 'node:crypto';
import { describe } from '@jest/globals';
import { Client } from 'pg';
import { serverUrl, type TestDatabase } from './test-database.js';

/** A login role of a test's own: no superuser, owner of nothing. Roles belong to the server, so they must be dropped. */
export interface TestRole {
  readonly name: string;
  /** The test's database, as this role. */
  urlOf(database: TestDatabase): string;
  /** After the databases in which it was granted something are gone. */
  drop(): Promise<void>;
}

export async function createRole(purpose: string): Promise<TestRole> {
  const name = `outbox_test_${purpose}_${randomBytes(4).toString('hex')}`;
  const password = randomBytes(12).toString('hex');
  await onServer(`CREATE ROLE ${name} LOGIN PASSWORD '${password}'`);
  return {
    name,
    urlOf: (database) => {
      const url = new URL(database.url);
      url.username = name;
      url.password = password;
      return url.href;
    },
    drop: async () => {
      await onServer(`DROP ROLE ${name}`);
    },
  };
}

/** Like `describe`; skipped, with the reason in its name, where global setup found that roles cannot be made. */
export function describeWithRoles(name: string, body: () => void): void {
  const reason = process.env['OUTBOX_TEST_NO_ROLES'];
  if (reason) describe.skip(`${name} (skipped: ${reason})`, body);
  else describe(name, body);
}

async function onServer(sql: string): Promise<void> {
  const client = new Client({ connectionString: serverUrl() });
  await client.connect();
  try {
    await client.query(sql);
  } finally {
    await client.end();
  }
}
