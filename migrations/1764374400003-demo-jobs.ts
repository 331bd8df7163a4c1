import type { MigrationInterface, QueryRunner } from 'typeorm';

/**
 * What the periodic jobs work on. `sessions` and `uploads` are looked up before anybody's tenant is known, and `job_log`
 * belongs to whoever operates the app: they have no policies. As everywhere in the demo, what records that something was
 * done has no unique constraint, so that work done twice would show as two rows.
 */
const tables = `
CREATE TABLE demo.tenants (id text PRIMARY KEY);
CREATE TABLE demo.subscriptions (id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
  tenant_id text NOT NULL DEFAULT NULLIF(current_setting('app.tenant_id', true), ''),
  plan text NOT NULL, cents int NOT NULL, card text NOT NULL, period_seconds int NOT NULL, due_at timestamptz NOT NULL DEFAULT now());
CREATE TABLE demo.renewals (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  tenant_id text NOT NULL DEFAULT NULLIF(current_setting('app.tenant_id', true), ''), subscription_id uuid NOT NULL, slot timestamptz NOT NULL, cents int NOT NULL);
CREATE TABLE demo.sessions (token uuid PRIMARY KEY, tenant_id text NOT NULL, expires_at timestamptz NOT NULL);
CREATE INDEX sessions_expires_at ON demo.sessions (expires_at);
CREATE TABLE demo.uploads (id uuid PRIMARY KEY, path text NOT NULL, begun_at timestamptz NOT NULL DEFAULT now());
CREATE TABLE demo.job_log (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, job text NOT NULL, slot timestamptz NOT NULL, attempt int NOT NULL,
  tenant_id text, worker text NOT NULL, began_at timestamptz NOT NULL DEFAULT clock_timestamp(), ended_at timestamptz, result int, error text);
CREATE INDEX job_log_slot ON demo.job_log (slot);
CREATE INDEX renewals_slot ON demo.renewals (slot);
ALTER TABLE demo.audit_lines ALTER COLUMN event_id DROP NOT NULL, ADD COLUMN created_at timestamptz NOT NULL DEFAULT now();
CREATE INDEX audit_lines_created_at ON demo.audit_lines (created_at)`;

/** Every two seconds each subscription is due; one card of initech's is declined, always. */
const subscriptions = [
  { tenant: 'acme', plan: 'basic', cents: 900, card: 'visa 4242' },
  { tenant: 'acme', plan: 'storage', cents: 400, card: 'visa 4242' },
  { tenant: 'globex', plan: 'basic', cents: 900, card: 'visa 1881' },
  { tenant: 'initech', plan: 'basic', cents: 900, card: 'declined 0002' },
  { tenant: 'initech', plan: 'storage', cents: 400, card: 'visa 1111' },
];

export class DemoJobs1764374400003 implements MigrationInterface {
  async up(queryRunner: QueryRunner): Promise<void> {
    for (const statement of tables.split(';')) await queryRunner.query(statement);
    for (const table of ['subscriptions', 'renewals']) await this.isolate(queryRunner, table);
    for (const table of ['tenants', 'subscriptions', 'renewals', 'sessions', 'uploads', 'job_log'])
      await queryRunner.query(`GRANT SELECT, INSERT, UPDATE, DELETE ON demo.${table} TO outbox_demo`);
    await queryRunner.query(`INSERT INTO demo.tenants (id) VALUES ('acme'), ('globex'), ('initech')`);
    for (const { tenant, plan, cents, card } of subscriptions) {
      await queryRunner.query(`SELECT set_config('app.tenant_id', $1, true)`, [tenant]);
      await queryRunner.query(
        'INSERT INTO demo.subscriptions (plan, cents, card, period_seconds) VALUES ($1, $2, $3, 2)',
        [plan, cents, card],
      );
    }
    await queryRunner.query(`SELECT set_config('app.tenant_id', '', true)`);
  }

  async down(queryRunner: QueryRunner): Promise<void> {
    await queryRunner.query(
      'DROP TABLE demo.tenants, demo.subscriptions, demo.renewals, demo.sessions, demo.uploads, demo.job_log',
    );
    // Of all tenants, which its policy keeps even from its owner.
    await queryRunner.query('ALTER TABLE demo.audit_lines NO FORCE ROW LEVEL SECURITY');
    await queryRunner.query('DELETE FROM demo.audit_lines WHERE event_id IS NULL');
    await queryRunner.query('ALTER TABLE demo.audit_lines FORCE ROW LEVEL SECURITY');
    await queryRunner.query('ALTER TABLE demo.audit_lines DROP COLUMN created_at, ALTER COLUMN event_id SET NOT NULL');
  }

  /** As the first of the demo's tables: everybody has the current tenant's rows only, and the owner may count all. */
  private async isolate(queryRunner: QueryRunner, table: string): Promise<void> {
    await queryRunner.query(`ALTER TABLE demo.${table} ENABLE ROW LEVEL SECURITY`);
    await queryRunner.query(`ALTER TABLE demo.${table} FORCE ROW LEVEL SECURITY`);
    await queryRunner.query(
      `CREATE POLICY tenant ON demo.${table} USING (tenant_id = NULLIF(current_setting('app.tenant_id', true), ''))`,
    );
    await queryRunner.query(`CREATE POLICY counting ON demo.${table} FOR SELECT TO CURRENT_USER USING (true)`);
  }
}
