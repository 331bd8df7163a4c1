import { randomUUID } from 'node:crypto';
import { ConflictException, Injectable } from '@nestjs/common';
import { InjectRepository } from '@nestjs/typeorm';
import { type JobContext, PeriodicJob } from 'nestjs-outbox';
import { type EntityManager, LessThan, Repository } from 'typeorm';
import { JobLog } from '../operations/job-log.js';
import { FileStore } from './file-store.js';
import { Upload } from './upload.entity.js';

/** An upload that nobody has finished for so long is given up; hours in a real app. */
const patienceMs = 5_000;

/**
 * No transaction spans a file and a row, so the row frames the file: it is committed before the file is written, and
 * goes only after the file is gone, or in the transaction that makes the file somebody's. Whatever dies in between, a row
 * says that there may be a file.
 */
@Injectable()
export class UploadService {
  constructor(
    @InjectRepository(Upload) private readonly uploads: Repository<Upload>,
    private readonly store: FileStore,
    private readonly log: JobLog,
  ) {}

  async begin(content: string): Promise<{ id: string; path: string }> {
    const id = randomUUID();
    const path = `${id}.blob`;
    await this.uploads.insert({ id, path });
    await this.store.write(path, content);
    return { id, path };
  }

  /** In the transaction that makes the file somebody's. The sweep and this meet at the row: one of them gets it. */
  async finish(manager: EntityManager, id: string): Promise<void> {
    const { affected } = await manager.delete(Upload, { id });
    if (affected !== 1) throw new ConflictException(`upload ${id} took too long and was given up`);
  }

  @PeriodicJob({ every: '1s' }, { name: 'file.sweep' })
  sweep(ctx: JobContext): Promise<void> {
    return this.log.keep(ctx, async () => {
      const begunAt = LessThan(new Date(ctx.slot.getTime() - patienceMs));
      const left = await this.uploads.findBy({ begunAt });
      // A file that cannot be removed keeps its row, and the others are removed all the same.
      await ctx.each(left, async ({ id, path }, row) => {
        const { affected } = await row.manager.delete(Upload, { id });
        // The row is locked and still there for everybody else: a crash here leaves it, and removing again is no error.
        if (affected === 1) await this.store.remove(path);
      });
      return left.length;
    });
  }
}
