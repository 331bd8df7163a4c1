import { Module } from '@nestjs/common';
import { TypeOrmModule } from '@nestjs/typeorm';
import { AuditService } from './audit.service.js';
import { AuditLine } from './audit-line.entity.js';

@Module({ imports: [TypeOrmModule.forFeature([AuditLine])], providers: [AuditService] })
export class AuditModule {}
