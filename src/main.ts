import 'reflect-metadata';
import { Injectable, Module } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { TypeOrmModule } from '@nestjs/typeorm';
import { type DeliveryContext, EventPublisher, type OutboxEvent, OutboxModule, Subscribe } from 'nestjs-outbox';
import { startPostgres } from 'throwaway-postgres';
import { DataSource } from 'typeorm';

const server = await startPostgres();
let n = 0;
let fails = 0;
@Injectable()
class Ledger {
  @Subscribe('billing.invoice.paid', 'ledger', { backoff: ['100ms'] })
  async post(e: OutboxEvent<{ i: number }>, ctx: DeliveryContext) {
    if (e.payload.i === 7 && fails++ < 2) throw new Error('boom');
    await ctx.manager.query('insert into effects (event_id) values ($1)', [e.id]);
    n++;
  }
}
@Module({
  imports: [
    TypeOrmModule.forRoot({ type: 'postgres', url: server.url }),
    OutboxModule.forRoot({ schema: { onStart: 'migrate' } }),
    OutboxModule.forFeature({ emits: ['billing.invoice.paid'] }),
  ],
  providers: [Ledger],
})
class App {}
const app = await NestFactory.createApplicationContext(App);
const ds = app.get(DataSource);
const pub = app.get(EventPublisher);
await ds.query('create table effects (event_id uuid primary key)');
const t0 = performance.now();
for (let i = 0; i < 2000; i += 50)
  await ds.transaction(async () => {
    await Promise.all(Array.from({ length: 50 }, (_, k) => pub.publish('billing.invoice.paid', { i: i + k })));
  });
console.log('published', performance.now() - t0);
while (n < 2000) await new Promise((r) => setTimeout(r, 20));
console.log(
  'handled',
  n,
  performance.now() - t0,
  await ds.query('select count(*) from effects'),
  await ds.query(
    'select (select count(*) from outbox.handled) h, (select count(*) from outbox.deliveries) d, (select count(*) from outbox.queue) q',
  ),
);
await app.close();
await server.stop();
