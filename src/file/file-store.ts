import { rm, writeFile } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { Injectable } from '@nestjs/common';
import { AppConfig } from '../config/app.config.js';

/** The folder of blobs; a bucket of some cloud in a real app. */
@Injectable()
export class FileStore {
  constructor(private readonly config: AppConfig) {}

  write(path: string, content: string): Promise<void> {
    return writeFile(this.place(path), content);
  }

  /** Removing what is not there is no error, so it may be repeated. */
  remove(path: string): Promise<void> {
    return rm(this.place(path), { force: true });
  }

  /** Never outside the folder, whatever an event says. */
  private place(path: string): string {
    return join(this.config.blobFolder, basename(path));
  }
}
