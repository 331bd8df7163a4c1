import { BadRequestException, Body, Controller, HttpCode, Param, ParseUUIDPipe, Post } from '@nestjs/common';
import { Tenant } from '../auth/tenant.decorator.js';
import { BillingService, type PaidInvoice } from './billing.service.js';

const most = 1_000_000_00;

@Controller('invoices')
export class BillingController {
  constructor(private readonly billing: BillingService) {}

  @Post()
  create(@Tenant() tenant: string, @Body() body: unknown): Promise<{ id: string }> {
    const { cents, email } = (body ?? {}) as { cents?: unknown; email?: unknown };
    if (typeof cents !== 'number' || !Number.isInteger(cents) || cents < 1 || cents > most)
      throw new BadRequestException(`cents must be a whole number from 1 to ${most}`);
    if (typeof email !== 'string' || !/^[^\s@]+@[^\s@]+$/.test(email))
      throw new BadRequestException('email must be an address');
    return this.billing.create(tenant, cents, email);
  }

  @Post(':id/pay')
  @HttpCode(200)
  pay(@Tenant() tenant: string, @Param('id', ParseUUIDPipe) id: string): Promise<PaidInvoice> {
    return this.billing.pay(tenant, id);
  }
}
