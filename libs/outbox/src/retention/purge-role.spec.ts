import { DataSource } from 'typeorm';
import { Past } from '../../../../test/support/past.js';
import { CapturedLog } from '../../../../test/support/test-app.js';
import { createDatabase } from '../../../../test/support/test-database.js';
import { createRole, describeWithRoles } from '../../../../test/support/test-role.js';
import { Database } from '../tables/database.js';
import { outboxSchema } from '../tables/schema/outbox-schema.js';
import { Purge } from './purge.js';

describeWithRoles('a role that owns nothing and has the grants of a worker', () => {
  it.each(['outbox', 'events_elsewhere'])('purges, in schema %s', async (schema) => {
    const database = await createDatabase();
    const role = await createRole('purger');
    const owner = await new DataSource({ type: 'postgres', url: database.url }).initialize();
    const source = new DataSource({ type: 'postgres', url: role.urlOf(database) });
    const log = new CapturedLog();
    try {
      await outboxSchema.up(owner, { schema });
      for (const sql of outboxSchema.grants({ schema, worker: role.name })) await owner.query(sql);
      await source.initialize();
      const past = new Past(database, 'billing.invoice.paid', schema);
      const ids = await past.events(9, 20);
      await past.marked(ids, 1);
      await past.failed(ids, 1);
      await past.waiting(ids.slice(0, 2), 2);
      await database.query(`
        INSERT INTO ${schema}.unique_keys SELECT '', 'a.b.c', '\\x00', gen_random_uuid(), now();
        INSERT INTO ${schema}.dead_letters (event_id, durable, type, payload, created_at, resolved_at) SELECT gen_random_uuid(), 'a', 'a.b.c', '{}', now(), now() - interval '31 days';
        INSERT INTO ${schema}.job_runs (job, slot, attempt) SELECT 'a', now() - interval '31 days', 1;
        INSERT INTO ${schema}.job_state (job, schedule, seen_at) SELECT 'a', '* * * * *', now() - interval '31 days';
        INSERT INTO ${schema}.job_tenants (job, slot, part, tenant) SELECT 'a', now(), 0, 'acme'`);
      const report = await new Purge(new Database(source, schema), { retentionMs: 7 * 86_400_000 }, log).run(
        new AbortController().signal,
      );
      expect(report).toEqual({
        ...{ days: 1, kept: 2, marks: 1, left: 0 },
        ...{ uniqueKeys: 1, deadLetters: 1, jobRuns: 1, jobStates: 1 },
      });
      expect(await past.left(ids)).toEqual(ids.slice(0, 2));
      expect(await database.value(`SELECT count(*)::int FROM ${schema}.job_tenants`)).toBe(0);
    } finally {
      if (source.isInitialized) await source.destroy();
      await owner.destroy();
      await database.drop();
      await role.drop();
    }
  });
});
