import type { MigrationInterface, QueryRunner } from 'typeorm';

/** Tables whose rows belong to a tenant. */
const ofTenants = ['invoices', 'ledger_entries', 'sent_mails', 'audit_lines', 'blobs', 'blob_removals'];
/** The mail server's own tables, and the list of what the demo published: neither knows tenants. */
const ofNobody = ['mailbox', 'greylist', 'published'];

/**
 * The demo's tables. Those that record what a handler did have a key of their own and no unique constraint on the event,
 * so that work done twice would show as two rows instead of an error.
 */
const tables = `
CREATE SCHEMA demo;
CREATE TABLE demo.invoices (id uuid PRIMARY KEY, tenant_id text NOT NULL DEFAULT NULLIF(current_setting('app.tenant_id', true), ''),
  cents int NOT NULL, email text NOT NULL, paid_at timestamptz, created_at timestamptz NOT NULL DEFAULT now());
CREATE TABLE demo.ledger_entries (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  tenant_id text NOT NULL DEFAULT NULLIF(current_setting('app.tenant_id', true), ''), event_id uuid NOT NULL, invoice_id text NOT NULL, cents int NOT NULL);
CREATE TABLE demo.sent_mails (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  tenant_id text NOT NULL DEFAULT NULLIF(current_setting('app.tenant_id', true), ''), event_id uuid NOT NULL, idempotency_key text NOT NULL, recipient text NOT NULL);
CREATE TABLE demo.audit_lines (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  tenant_id text NOT NULL DEFAULT NULLIF(current_setting('app.tenant_id', true), ''), event_id uuid NOT NULL, line text NOT NULL);
CREATE TABLE demo.blobs (id uuid PRIMARY KEY, tenant_id text NOT NULL DEFAULT NULLIF(current_setting('app.tenant_id', true), ''),
  name text NOT NULL, path text NOT NULL);
CREATE TABLE demo.blob_removals (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  tenant_id text NOT NULL DEFAULT NULLIF(current_setting('app.tenant_id', true), ''), event_id uuid NOT NULL, path text NOT NULL);
CREATE TABLE demo.mailbox (idempotency_key text PRIMARY KEY, recipient text NOT NULL, subject text NOT NULL, repeats int NOT NULL DEFAULT 0);
CREATE TABLE demo.greylist (idempotency_key text PRIMARY KEY, refusals int NOT NULL);
CREATE TABLE demo.published (event_id uuid PRIMARY KEY, run uuid NOT NULL, type text NOT NULL, path text);
CREATE INDEX published_run ON demo.published (run)`;

export class DemoTables1764374400001 implements MigrationInterface {
  async up(queryRunner: QueryRunner): Promise<void> {
    for (const statement of tables.split(';')) await queryRunner.query(statement);
    for (const table of ['ledger_entries', 'sent_mails', 'audit_lines', 'blob_removals'])
      await queryRunner.query(`CREATE INDEX ${table}_event ON demo.${table} (event_id)`);
    for (const table of ofTenants) await this.isolate(queryRunner, table);
    await queryRunner.query('GRANT USAGE ON SCHEMA demo TO outbox_demo');
    for (const table of [...ofTenants, ...ofNobody])
      await queryRunner.query(`GRANT SELECT, INSERT, UPDATE, DELETE ON demo.${table} TO outbox_demo`);
  }

  async down(queryRunner: QueryRunner): Promise<void> {
    await queryRunner.query('DROP SCHEMA demo CASCADE');
  }

  /** Everybody sees and writes the current tenant's rows only; the owner may also read all of them, to count them. */
  private async isolate(queryRunner: QueryRunner, table: string): Promise<void> {
    await queryRunner.query(`ALTER TABLE demo.${table} ENABLE ROW LEVEL SECURITY`);
    await queryRunner.query(`ALTER TABLE demo.${table} FORCE ROW LEVEL SECURITY`);
    await queryRunner.query(
      `CREATE POLICY tenant ON demo.${table} USING (tenant_id = NULLIF(current_setting('app.tenant_id', true), ''))`,
    );
    await queryRunner.query(`CREATE POLICY counting ON demo.${table} FOR SELECT TO CURRENT_USER USING (true)`);
  }
}
