import { Module } from '@nestjs/common';
import { TypeOrmModule } from '@nestjs/typeorm';
import { OutboxModule } from 'nestjs-outbox';
import { Blob } from './blob.entity.js';
import { BlobRemoval } from './blob-removal.entity.js';
import { blobRemoved } from './blob-removed.event.js';
import { FileController } from './file.controller.js';
import { FileService } from './file.service.js';
import { FileStore } from './file-store.js';
import { Upload } from './upload.entity.js';
import { UploadService } from './upload.service.js';

@Module({
  imports: [TypeOrmModule.forFeature([Blob, BlobRemoval, Upload]), OutboxModule.forFeature({ emits: [blobRemoved] })],
  controllers: [FileController],
  providers: [FileService, FileStore, UploadService],
  exports: [FileService, UploadService],
})
export class FileModule {}
