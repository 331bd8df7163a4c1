import { outboxSchema } from 'nestjs-outbox';
import type { MigrationInterface, QueryRunner } from 'typeorm';

/** Version 4 of the library's tables: pauses, cancelling, the audit and the public views. */
export class Outbox41764374400005 implements MigrationInterface {
  async up(queryRunner: QueryRunner): Promise<void> {
    await outboxSchema.up(queryRunner, { to: 4 });
    const grants = outboxSchema.grants({ to: 4, worker: 'outbox_demo', operator: 'outbox_demo' });
    for (const grant of grants) await queryRunner.query(grant);
  }

  async down(queryRunner: QueryRunner): Promise<void> {
    await outboxSchema.down(queryRunner, { to: 3 });
  }
}
