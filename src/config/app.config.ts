import { hostname } from 'node:os';
import type { OutboxRole } from 'nestjs-outbox';

/** What differs from process to process. A class, so that it can be injected as it is. */
export class AppConfig {
  /** The name of this process where people look for it. */
  readonly process = processName(process.pid);

  constructor(
    /** Connects as an ordinary role: row-level security would not bind a superuser. */
    readonly databaseUrl: string,
    /** Where the files of blobs are. */
    readonly blobFolder: string,
    readonly role: OutboxRole,
  ) {}
}

export function processName(pid: number): string {
  return `${hostname()}:${pid}`;
}
