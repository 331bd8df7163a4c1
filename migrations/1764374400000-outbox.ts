import { outboxSchema } from 'nestjs-outbox';
import type { MigrationInterface, QueryRunner } from 'typeorm';

/** The library's tables, and what the app's ordinary role may do with them. The role itself is the administrator's to make. */
export class Outbox1764374400000 implements MigrationInterface {
  async up(queryRunner: QueryRunner): Promise<void> {
    await outboxSchema.up(queryRunner, { to: 1 });
    await queryRunner.query('GRANT USAGE ON SCHEMA outbox TO outbox_demo');
    await queryRunner.query('GRANT ALL ON ALL TABLES IN SCHEMA outbox TO outbox_demo');
    await queryRunner.query('GRANT ALL ON ALL SEQUENCES IN SCHEMA outbox TO outbox_demo');
    await queryRunner.query('GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA outbox TO outbox_demo');
  }

  async down(queryRunner: QueryRunner): Promise<void> {
    await outboxSchema.down(queryRunner);
  }
}
