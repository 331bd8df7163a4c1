import { Injectable, Module } from '@nestjs/common';
import { TypeOrmModule } from '@nestjs/typeorm';
import { OutboxModule, Subscribe } from 'nestjs-outbox';

/** Root modules for `nestjs-outbox check`; compiled, since it loads JavaScript. Their import leaves something running. */
setInterval(() => {}, 60_000);

@Injectable()
class Ledger {
  @Subscribe('billing.invoice.paid', 'ledger')
  async post(): Promise<void> {}
}

@Injectable()
class Misspelt {
  @Subscribe('billing.invoice.payed', 'ledger')
  async post(): Promise<void> {}
}

const parts = [
  // Leads nowhere: nothing connects by it.
  TypeOrmModule.forRoot({ type: 'postgres', url: 'postgres://127.0.0.1:1/nowhere' }),
  OutboxModule.forFeature({ emits: ['billing.invoice.paid'] }),
];

@Module({ imports: [OutboxModule.forRoot({ role: 'worker' }), ...parts], providers: [Ledger] })
export class AppModule {}

@Module({ imports: [OutboxModule.forRoot({ role: 'worker' }), ...parts], providers: [Misspelt] })
export class MisspeltModule {}

@Module({ imports: [OutboxModule.forRoot({ schema: { onStart: 'migrate' } }), ...parts], providers: [Ledger] })
export class MigratingModule {}
