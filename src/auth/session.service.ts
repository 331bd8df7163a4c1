import { randomUUID } from 'node:crypto';
import { Injectable } from '@nestjs/common';
import { InjectRepository } from '@nestjs/typeorm';
import { type JobContext, PeriodicJob } from 'nestjs-outbox';
import { LessThanOrEqual, Repository } from 'typeorm';
import { JobLog } from '../operations/job-log.js';
import { Session } from './session.entity.js';

/** Short, so that a demo of seconds sees sessions expire. */
const lifetime = '500 milliseconds';

@Injectable()
export class SessionService {
  constructor(
    @InjectRepository(Session) private readonly sessions: Repository<Session>,
    private readonly log: JobLog,
  ) {}

  async open(tenantId: string): Promise<string> {
    const token = randomUUID();
    await this.sessions.insert({ token, tenantId, expiresAt: () => `now() + interval '${lifetime}'` });
    return token;
  }

  /** What had expired at the slot, whenever it really runs: a slot that is run again after a crash removes the same. */
  @PeriodicJob({ every: '1s' }, { name: 'auth.sweep' })
  sweep(ctx: JobContext): Promise<void> {
    return this.log.keep(ctx, async () => {
      const { affected } = await this.sessions.delete({ expiresAt: LessThanOrEqual(ctx.slot) });
      return affected ?? 0;
    });
  }
}
