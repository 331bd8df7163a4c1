import { Module } from '@nestjs/common';
import { TypeOrmModule } from '@nestjs/typeorm';
import { OutboxModule } from 'nestjs-outbox';
import { BillingController } from './billing.controller.js';
import { BillingService } from './billing.service.js';
import { CardNetwork } from './card-network.js';
import { Invoice } from './invoice.entity.js';
import { invoicePaid } from './invoice-paid.event.js';
import { Renewal } from './renewal.entity.js';
import { RenewalService } from './renewal.service.js';
import { Subscription } from './subscription.entity.js';
import { subscriptionRenewed } from './subscription-renewed.event.js';

@Module({
  imports: [
    TypeOrmModule.forFeature([Invoice, Subscription, Renewal]),
    OutboxModule.forFeature({ emits: [invoicePaid, subscriptionRenewed] }),
  ],
  controllers: [BillingController],
  providers: [BillingService, CardNetwork, RenewalService],
  exports: [BillingService],
})
export class BillingModule {}
