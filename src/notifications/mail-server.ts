import { Injectable, type OnApplicationShutdown } from '@nestjs/common';
import { Pool } from 'pg';
import { AppConfig } from '../config/app.config.js';

export interface Mail {
  readonly to: string;
  readonly subject: string;
  /** The server delivers one mail per key, however often it is handed in. */
  readonly idempotencyKey: string;
}

/** How often the server turns away a mail to a greylisted address before it takes it. */
const greylistings = 2;

/**
 * Stands for a mail server on the network: it has connections of its own, so what it accepted stays accepted when the
 * handler's transaction rolls back. Addresses that begin with `greylisted` are turned away twice, `nobody` always.
 */
@Injectable()
export class MailServer implements OnApplicationShutdown {
  private readonly pool: Pool;

  constructor(config: AppConfig) {
    this.pool = new Pool({ connectionString: config.databaseUrl, max: 2 });
    this.pool.on('error', () => {});
  }

  async send(mail: Mail): Promise<void> {
    if (mail.to.startsWith('nobody')) throw new Error(`550 no such mailbox: ${mail.to}`);
    if (mail.to.startsWith('greylisted') && (await this.refusals(mail)) <= greylistings)
      throw new Error(`451 greylisted, try again later: ${mail.to}`);
    await this.pool.query(
      `INSERT INTO demo.mailbox AS m (idempotency_key, recipient, subject) VALUES ($1, $2, $3)
       ON CONFLICT (idempotency_key) DO UPDATE SET repeats = m.repeats + 1`,
      [mail.idempotencyKey, mail.to, mail.subject],
    );
  }

  async onApplicationShutdown(): Promise<void> {
    await this.pool.end();
  }

  private async refusals(mail: Mail): Promise<number> {
    const { rows } = await this.pool.query<{ refusals: number }>(
      `INSERT INTO demo.greylist AS g (idempotency_key, refusals) VALUES ($1, 1)
       ON CONFLICT (idempotency_key) DO UPDATE SET refusals = g.refusals + 1 RETURNING refusals`,
      [mail.idempotencyKey],
    );
    return rows[0]?.refusals ?? 0;
  }
}
