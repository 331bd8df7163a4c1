import { Module } from '@nestjs/common';
import { TypeOrmModule } from '@nestjs/typeorm';
import { LedgerService } from './ledger.service.js';
import { LedgerEntry } from './ledger-entry.entity.js';

@Module({ imports: [TypeOrmModule.forFeature([LedgerEntry])], providers: [LedgerService] })
export class LedgerModule {}
