import { Module } from '@nestjs/common';
import { TypeOrmModule } from '@nestjs/typeorm';
import { OutboxModule } from 'nestjs-outbox';
import { BillingController } from './billing.controller.js';
import { BillingService } from './billing.service.js';
import { Invoice } from './invoice.entity.js';
import { invoicePaid } from './invoice-paid.event.js';

@Module({
  imports: [TypeOrmModule.forFeature([Invoice]), OutboxModule.forFeature({ emits: [invoicePaid] })],
  controllers: [BillingController],
  providers: [BillingService],
  exports: [BillingService],
})
export class BillingModule {}
