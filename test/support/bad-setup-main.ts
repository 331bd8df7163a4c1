import 'reflect-metadata';
import { Injectable, Module } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { TypeOrmModule } from '@nestjs/typeorm';
import { OutboxModule, Subscribe } from 'nestjs-outbox';

@Injectable()
class Ledger {
  @Subscribe('billing.invoice.payed', 'ledger')
  post(): void {}
}

/** A whole process with a wrong set-up, started the way a user starts one: it must not stay. */
@Module({
  imports: [
    TypeOrmModule.forRoot({ type: 'postgres', url: process.env['DATABASE_URL'] ?? '' }),
    OutboxModule.forRoot({ schema: { onStart: 'migrate' } }),
    OutboxModule.forFeature({ emits: ['billing.invoice.paid'] }),
  ],
  providers: [Ledger],
})
class WrongModule {}

await NestFactory.createApplicationContext(WrongModule);
// Not reached. A process that got here would stay, because the pool and the loops keep it alive.
console.log('booted');
