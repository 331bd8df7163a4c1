import { outboxSchema } from 'nestjs-outbox';
import type { MigrationInterface, QueryRunner } from 'typeorm';

/** The library's tables, and what the app's ordinary role may do with them. The role itself is the administrator's to make. */
export class Outbox1764374400000 implements MigrationInterface {
  async up(queryRunner: QueryRunner): Promise<void> {
    await outboxSchema.up(queryRunner, { to: 1 });
    // It publishes and handles, and the summary in the terminal reads.
    const grants = outboxSchema.grants({ to: 1, worker: 'outbox_demo', operator: 'outbox_demo' });
    for (const grant of grants) await queryRunner.query(grant);
  }

  async down(queryRunner: QueryRunner): Promise<void> {
    await outboxSchema.down(queryRunner);
  }
}
