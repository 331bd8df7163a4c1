import { outboxSchema } from 'nestjs-outbox';
import type { MigrationInterface, QueryRunner } from 'typeorm';

/** Version 3 of the library's tables: first deliveries by a broker, which are no rows. It is needed on every transport. */
export class Outbox31764374400004 implements MigrationInterface {
  async up(queryRunner: QueryRunner): Promise<void> {
    await outboxSchema.up(queryRunner, { to: 3 });
    const grants = outboxSchema.grants({ to: 3, worker: 'outbox_demo', operator: 'outbox_demo' });
    for (const grant of grants) await queryRunner.query(grant);
  }

  async down(queryRunner: QueryRunner): Promise<void> {
    await outboxSchema.down(queryRunner, { to: 2 });
  }
}
