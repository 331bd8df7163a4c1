import { Global, Module } from '@nestjs/common';
import { TypeOrmModule } from '@nestjs/typeorm';
import { KnownTenant } from './known-tenant.entity.js';
import { Session } from './session.entity.js';
import { SessionService } from './session.service.js';
import { TenantTransactions } from './tenant-transactions.js';

@Global()
@Module({
  imports: [TypeOrmModule.forFeature([KnownTenant, Session])],
  providers: [TenantTransactions, SessionService],
  exports: [TenantTransactions, SessionService],
})
export class AuthModule {}
