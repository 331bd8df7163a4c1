import { Global, Module } from '@nestjs/common';
import { TenantTransactions } from './tenant-transactions.js';

@Global()
@Module({ providers: [TenantTransactions], exports: [TenantTransactions] })
export class AuthModule {}
