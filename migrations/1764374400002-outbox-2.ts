import { outboxSchema } from 'nestjs-outbox';
import type { MigrationInterface, QueryRunner } from 'typeorm';

/** Version 2 of the library's tables: periodic jobs and retention. Each version wants its grants. */
export class Outbox21764374400002 implements MigrationInterface {
  async up(queryRunner: QueryRunner): Promise<void> {
    await outboxSchema.up(queryRunner, { to: 2 });
    const grants = outboxSchema.grants({ to: 2, worker: 'outbox_demo', operator: 'outbox_demo' });
    for (const grant of grants) await queryRunner.query(grant);
  }

  async down(queryRunner: QueryRunner): Promise<void> {
    await outboxSchema.down(queryRunner, { to: 1 });
  }
}
