import 'reflect-metadata';
import { Module } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { TypeOrmModule } from '@nestjs/typeorm';
import { EventPublisher, OutboxModule } from 'nestjs-outbox';
import { DataSource } from 'typeorm';

/**
 * Run under `node --throw-deprecation`: publishes in parallel within one transaction. With the argument `unordered` it
 * sends plain queries in parallel instead, which node-postgres does warn of: the control of the test.
 */
@Module({
  imports: [
    TypeOrmModule.forRoot({ type: 'postgres', url: process.env['DATABASE_URL'] ?? '' }),
    OutboxModule.forRoot({ role: 'publisher' }),
    OutboxModule.forFeature({ emits: ['test.thing.done'] }),
  ],
})
class PublishingModule {}

const app = await NestFactory.createApplicationContext(PublishingModule, { logger: false, abortOnError: false });
const publisher = app.get(EventPublisher);
const ten = Array.from({ length: 10 }, (_, i) => i);
await app.get(DataSource).transaction(async (manager) => {
  const work = (i: number): Promise<unknown> =>
    process.argv.includes('unordered')
      ? manager.query('SELECT $1::int', [i])
      : i % 3 === 0
        ? publisher.publishMany([{ event: 'test.thing.done', payload: { i } }])
        : (i % 2 === 0 ? publisher : publisher.with(manager)).publish('test.thing.done', { i });
  await Promise.all(ten.map(work));
});
await app.close();
