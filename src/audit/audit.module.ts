import { Module } from '@nestjs/common';
import { TypeOrmModule } from '@nestjs/typeorm';
import { AuditService } from './audit.service.js';
import { AuditLine } from './audit-line.entity.js';
import { RetentionService } from './retention.service.js';

@Module({
  imports: [TypeOrmModule.forFeature([AuditLine])],
  providers: [AuditService, RetentionService],
  exports: [AuditService],
})
export class AuditModule {}
