import { Injectable, NotFoundException } from '@nestjs/common';
import { type DeliveryContext, EventPublisher, type OutboxEvent, Subscribe, UnrecoverableError } from 'nestjs-outbox';
import { TenantTransactions } from '../auth/tenant-transactions.js';
import { Blob } from './blob.entity.js';
import { BlobRemoval } from './blob-removal.entity.js';
import { type BlobRemoved, blobRemoved } from './blob-removed.event.js';
import { FileStore } from './file-store.js';
import { UploadService } from './upload.service.js';

export interface RemovedBlob {
  readonly id: string;
  readonly path: string;
  readonly eventId: string;
}

@Injectable()
export class FileService {
  constructor(
    private readonly transactions: TenantTransactions,
    private readonly publisher: EventPublisher,
    private readonly store: FileStore,
    private readonly uploads: UploadService,
  ) {}

  async create(tenant: string, name: string, content: string): Promise<{ id: string }> {
    const { id, path } = await this.uploads.begin(content);
    await this.transactions.run(tenant, async (manager) => {
      await this.uploads.finish(manager, id);
      await manager.insert(Blob, { id, name, path });
    });
    return { id };
  }

  /** Removing the file here would lose it when the transaction rolls back; the event is only there when it committed. */
  remove(tenant: string, id: string): Promise<RemovedBlob> {
    return this.transactions.run(tenant, async (manager) => {
      const blob = await manager.findOneBy(Blob, { id });
      const deleted = await manager.delete(Blob, { id });
      if (!blob || deleted.affected !== 1) throw new NotFoundException(`there is no blob ${id}`);
      const payload: BlobRemoved = { path: blob.path };
      const event = await this.publisher.publish(blobRemoved, payload, { subject: id });
      return { id, path: blob.path, eventId: event.id };
    });
  }

  @Subscribe(blobRemoved, 'blob-remover')
  async removeFile(event: OutboxEvent<BlobRemoved>, ctx: DeliveryContext): Promise<void> {
    const path: unknown = (event.payload as Partial<BlobRemoved> | null)?.path;
    if (typeof path !== 'string') throw new UnrecoverableError(`the payload of ${event.type} must be { path: string }`);
    await this.store.remove(path);
    await ctx.manager.insert(BlobRemoval, { eventId: event.id, path });
  }
}
