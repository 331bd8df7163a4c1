import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { DemoArguments } from './arguments.js';
import { Broker } from './broker.js';
import { startPostgresProcess } from './postgres-process.js';
import { prepareDatabase } from './preparation.js';

/** Everything the demo stands on, and how it is cleared away. */
export interface Stage {
  readonly adminUrl: string;
  readonly appUrl: string;
  readonly blobFolder: string;
  /** Before any job could run, by the database's clock. */
  readonly since: Date;
  /** Carries first deliveries, if one does. */
  readonly broker: Broker | undefined;
  clear(): Promise<void>;
}

/** A worker's pool and the library's own connections, and what a killed one leaves behind until the server notices. */
const connectionsOfWorker = 40;

export async function setStage(
  main: string,
  { workers, transport }: Pick<DemoArguments, 'workers' | 'transport'>,
): Promise<Stage> {
  const clearing: (() => Promise<unknown>)[] = [];
  const clear = async (): Promise<void> => {
    for (const step of clearing.splice(0).toReversed()) await step();
  };
  try {
    const broker = transport === 'jetstream' ? await Broker.start() : undefined;
    if (broker) clearing.push(() => broker.stop());
    const given = process.env['DATABASE_URL'] || undefined;
    const server = given ? undefined : await startPostgresProcess(main, 100 + workers * connectionsOfWorker);
    if (server) clearing.push(() => server.stop());
    const adminUrl = given ?? server?.url ?? '';
    const { appUrl, since, discard } = await prepareDatabase(adminUrl);
    clearing.push(discard);
    const blobFolder = await mkdtemp(join(tmpdir(), 'outbox-demo-'));
    clearing.push(() => rm(blobFolder, { recursive: true, force: true }));
    return { adminUrl, appUrl, blobFolder, since, broker, clear };
  } catch (error) {
    await clear();
    throw error;
  }
}
