import { Injectable } from '@nestjs/common';
import { type JobContext, PeriodicJob } from 'nestjs-outbox';
import { JobLog } from './job-log.js';

@Injectable()
export class HeartbeatService {
  constructor(private readonly log: JobLog) {}

  /** In every process, beside the same job of all others: says that this one lives, and how much memory it has (MB). */
  @PeriodicJob({ every: '1s' }, { name: 'heartbeat', parallel: true })
  beat(ctx: JobContext): Promise<void> {
    return this.log.keep(ctx, async () => Math.round(process.memoryUsage.rss() / 2 ** 20));
  }
}
