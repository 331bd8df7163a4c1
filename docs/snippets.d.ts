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
  const log: { alert(text: string): void };
  class Invoice {
    id: string;
    status: string;
  }
}
