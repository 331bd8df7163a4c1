import { Global, Module } from '@nestjs/common';
import { TypeOrmModule } from '@nestjs/typeorm';
import { HeartbeatService } from './heartbeat.service.js';
import { JobLine } from './job-line.entity.js';
import { JobLog } from './job-log.js';

@Global()
@Module({ imports: [TypeOrmModule.forFeature([JobLine])], providers: [JobLog, HeartbeatService], exports: [JobLog] })
export class OperationsModule {}
