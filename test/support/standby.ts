import { once } from 'node:events';
import { Client, type Connection } from 'pg';

/** What node-postgres has and its types leave out. */
interface Replication {
  sendCopyFromChunk(chunk: Buffer): void;
}

/**
 * Streams from the server as a standby would, with `hot_standby_feedback` for a query that needs everything from `xmin`
 * on; over the slot of that name, if there is one.
 */
export async function pretendStandby(url: string, name: string, xmin: number, slot?: string): Promise<() => void> {
  const config = { connectionString: url, application_name: name, replication: 'true' };
  const client = new Client(config);
  client.on('error', () => {});
  await client.connect();
  const { rows } = await client.query('IDENTIFY_SYSTEM');
  const { connection } = client as Client & { connection: Connection & Replication };
  const streaming = once(connection, 'replicationStart');
  const over = slot ? `SLOT ${slot} ` : '';
  client.query(`START_REPLICATION ${over}PHYSICAL ${rows[0].xlogpos}`).catch(() => {});
  await streaming;
  // Hot standby feedback: 'h', time, xmin, epoch, catalog xmin, epoch.
  const feedback = Buffer.alloc(25);
  feedback.write('h');
  feedback.writeUInt32BE(xmin, 9);
  connection.sendCopyFromChunk(feedback);
  return () => connection.stream.destroy();
}
