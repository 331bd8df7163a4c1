// What the snippets of the README and the guide may use without declaring it.
/// <reference path="./terminus.d.ts" />
import type { INestApplicationContext } from '@nestjs/common';
import type { DeadLetters as DeadLettersService, EventPublisher as EventPublisherService } from 'nestjs-outbox';
import type { DataSource as DataSourceType, EntityManager, MigrationInterface, QueryRunner } from 'typeorm';

declare global {
  const dataSource: DataSourceType;
  const app: INestApplicationContext;
  const publisher: EventPublisherService;
  const deadLetters: DeadLettersService;
  const manager: EntityManager;
  const queryRunner: QueryRunner;
  const mailer: { send(mail: { to: string; idempotencyKey: string }, options: { signal: AbortSignal }): Promise<void> };
  const log: { alert(text: string): void };
  class AppModule {}
  class BillingService {
    pay(invoiceId: string): Promise<{ id: string }>;
  }
  const DataSource: typeof DataSourceType;
  function test(name: string, body: () => Promise<void>): void;
  function expect(value: unknown): { toEqual(expected: unknown): void };
  class Invoice {
    id: string;
    status: string;
  }
  class AddBilling1764400000000 implements MigrationInterface {
    up(queryRunner: QueryRunner): Promise<void>;
    down(queryRunner: QueryRunner): Promise<void>;
  }
  function startPostgres(port: number): Promise<{ url: string; stop(): Promise<void> }>;
  /** Imports some lines from one on; the number of the next one, if there are more. */
  function importLines(manager: EntityManager, file: string, from: number, count: number): Promise<number | undefined>;
}
