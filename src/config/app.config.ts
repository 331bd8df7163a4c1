import { hostname } from 'node:os';
import type { OutboxRole } from 'nestjs-outbox';

/** Two services of one image: what the one leaves out is the other's. */
export const services = {
  money: { only: ['ledger', 'receipt-*'] },
  rest: { except: ['ledger', 'receipt-*'] },
} as const;
export type Service = keyof typeof services;

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
    /** Which of the handlers this process runs, when the image serves several deployments. */
    readonly service?: Service,
    /** Where NATS is; without it the database carries everything. */
    readonly natsUrl?: string,
  ) {}
}

export function processName(pid: number): string {
  return `${hostname()}:${pid}`;
}
