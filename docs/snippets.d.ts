// What the snippets of the README and the guide may use without declaring it.
import type { DeadLetters as DeadLettersService, EventPublisher as EventPublisherService } from 'nestjs-outbox';
import type { DataSource as DataSourceType, EntityManager, QueryRunner } from 'typeorm';

declare global {
  const dataSource: DataSourceType;
  const publisher: EventPublisherService;
  const deadLetters: DeadLettersService;
  const manager: EntityManager;
  const queryRunner: QueryRunner;
  const mailer: { send(mail: { to: string; idempotencyKey: string }, options: { signal: AbortSignal }): Promise<void> };
  class AppModule {}
  class BillingService {
    pay(invoiceId: string): Promise<void>;
  }
  const DataSource: typeof DataSourceType;
  function test(name: string, body: () => Promise<void>): void;
  function waitFor(condition: () => Promise<boolean>): Promise<void>;
  class Invoice {
    id: string;
    status: string;
  }
}
