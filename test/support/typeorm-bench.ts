import { getRepositoryToken, TypeOrmModule } from '@nestjs/typeorm';
import type { DeliveryContext, OutboxRootOptions } from 'nestjs-outbox';
import type { EntityManager, Logger, QueryRunner, Repository } from 'typeorm';
import { gate } from './eventually.js';
import { Invoice, InvoiceRepository, InvoiceService, Line } from './invoices.js';
import { type Stage, subscriber } from './stage.js';
import type { TestApp } from './test-app.js';
import type { Desk } from './typeorm-ways.js';

/** The type that the handler of a bench hears, and one that nobody does. */
export const event = 'test.work.asked';
export const unheard = 'test.work.done';

/** One app with two entities, a desk for the ways of using TypeORM, and a handler that does what a test asks for. */
export class Bench {
  /** What TypeORM sent since the last `prepare`, and on which runner. */
  readonly statements: { readonly sql: string; readonly runner: QueryRunner | undefined }[] = [];
  private work: (context: DeliveryContext) => Promise<unknown> = async () => {};
  private done = gate<{ readonly value?: unknown; readonly error?: unknown }>();
  private fails = false;
  private opened: TestApp | undefined;
  private prepared: Desk | undefined;

  constructor(private readonly stage: Stage) {}

  get app(): TestApp {
    if (!this.opened) throw new Error('booted in beforeAll');
    return this.opened;
  }

  get desk(): Desk {
    if (!this.prepared) throw new Error('prepared in beforeEach');
    return this.prepared;
  }

  async boot(outbox: OutboxRootOptions = {}): Promise<void> {
    const logger = {
      logQuery: (sql: string, _: unknown, runner?: QueryRunner) => void this.statements.push({ sql, runner }),
    };
    this.opened = await this.stage.boot({
      outbox,
      manifest: { emits: [event, unheard] },
      imports: [TypeOrmModule.forFeature([Invoice, Line])],
      providers: [
        InvoiceService,
        subscriber(
          event,
          'ledger',
          async (_, context) => {
            const { work, done } = this;
            try {
              done.open({ value: await work(context) });
            } catch (error) {
              done.open({ error });
            }
            if (this.fails) throw new Error('asked to fail');
          },
          { timeout: '20s', maxAttempts: 1 },
        ),
      ],
      typeorm: {
        entities: [Invoice, Line],
        synchronize: true,
        logging: true,
        logger: new Proxy(logger, { get: (of, key) => Reflect.get(of, key) ?? (() => {}) }) as unknown as Logger,
      },
    });
  }

  async prepare(): Promise<void> {
    const { app, dataSource } = this.app;
    const repository = app.get<Repository<Invoice>>(getRepositoryToken(Invoice));
    await this.stage.database.query('TRUNCATE invoice, line RESTART IDENTITY CASCADE');
    const invoice = await repository.save({ title: 'first' });
    await dataSource.getRepository(Line).insert({ text: 'a', invoice: { id: invoice.id } as never });
    const line = await dataSource.getRepository(Line).findOneByOrFail({ text: 'a' });
    const found = await repository.findOneByOrFail({ id: invoice.id as number });
    this.prepared = {
      dataSource,
      repository,
      own: new InvoiceRepository(dataSource),
      invoice: found as Desk['invoice'],
      line: line as Desk['line'],
    };
    this.app.log.lines.length = 0;
    this.statements.length = 0;
  }

  /** What `work` answered or threw in a handler; with `fails` the handler throws after it. */
  async inHandler(
    work: (context: DeliveryContext) => Promise<unknown>,
    { tenantId, fails = false }: { readonly tenantId?: string; readonly fails?: boolean } = {},
  ): Promise<{ readonly value?: unknown; readonly error?: unknown }> {
    this.work = work;
    this.fails = fails;
    this.done = gate();
    await this.app.publisher.publishNow(event, {}, tenantId === undefined ? {} : { tenantId });
    return this.done.passed;
  }

  inTransaction<T>(work: (manager: EntityManager) => Promise<T>): Promise<T> {
    return this.app.dataSource.transaction(work);
  }

  titles(): Promise<{ title: string }[]> {
    return this.stage.database.query('SELECT title FROM invoice ORDER BY id');
  }

  warnings(): string[] {
    return this.app.log.matching(/^warn /);
  }
}
