import type { OutboxRole } from 'nestjs-outbox';

/** What differs from process to process. A class, so that it can be injected as it is. */
export class AppConfig {
  constructor(
    /** Connects as an ordinary role: row-level security would not bind a superuser. */
    readonly databaseUrl: string,
    /** Where the files of blobs are. */
    readonly blobFolder: string,
    readonly role: OutboxRole,
  ) {}
}
