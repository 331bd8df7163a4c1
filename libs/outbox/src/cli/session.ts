import { Injectable, type OnModuleDestroy } from '@nestjs/common';
import { DiscoveryService } from '@nestjs/core';
import { DataSource } from 'typeorm';
import type { Log } from '../core/throttled-log.js';
import { KnownEvents } from '../events/known-events.js';
import { OutboxSettings } from '../outbox.options.js';
import { type OutboxParts, wire } from '../outbox.wiring.js';
import { Database } from '../tables/database.js';
import { postgres } from '../transports/postgres/postgres.transport.js';
import { CliError } from './cli-error.js';
import { type Target, targetOf, urlOf } from './config.js';
import { exit } from './exit-codes.js';
import { isUnreachable, textOf } from './failure.js';
import type { CommonOptions } from './options.js';
import { fitSchema } from './schema-fit.js';

/** The server's own patience may be longer than a person's. */
const connectMs = 10_000;

const silent: Log = { log: () => {}, warn: () => {}, error: () => {} };

/** What a command works with. */
export interface Connected extends Pick<OutboxParts, 'inspector' | 'durables' | 'deadLetters' | 'health'> {
  readonly schema: string;
}

/**
 * The database of one command: the parts of a publisher's outbox, wired by hand and without its life. No gate is passed,
 * which a role that only reads would not come through; no loop runs, nothing is registered, and no number is taken.
 */
@Injectable()
export class Session implements OnModuleDestroy {
  private readonly opened: (() => Promise<unknown>)[] = [];

  constructor(private readonly discovery: DiscoveryService) {}

  /** The outbox of the database that the options name; throws `CliError` when its schema does not fit. */
  async open(options: CommonOptions): Promise<Connected> {
    const target = await targetOf(options);
    const dataSource = await this.connect(target);
    const schema = target.schema ?? 'outbox';
    await fitSchema(new Database(dataSource, schema));
    const { lifecycle, ...parts } = wire({
      settings: new OutboxSettings(
        { role: 'publisher', schema: { name: schema }, transactions: { repositories: 'off' } },
        postgres(),
      ),
      dataSource,
      catalog: new KnownEvents(),
      discovery: this.discovery,
      roots: () => 1,
      scheduled: () => Promise.reject(new Error('the command line runs no jobs')),
      log: silent,
    });
    this.opened.unshift(() => lifecycle.beforeApplicationShutdown());
    return { ...parts, schema };
  }

  /** The database alone, whatever is in it. */
  async connect(target: Target): Promise<DataSource> {
    const url = urlOf(target);
    const dataSource = new DataSource({
      type: 'postgres',
      url,
      applicationName: 'nestjs-outbox cli',
      connectTimeoutMS: connectMs,
    });
    try {
      await dataSource.initialize();
    } catch (error) {
      throw isUnreachable(error) ? unreachable(url, error) : error;
    }
    this.opened.unshift(() => dataSource.destroy());
    return dataSource;
  }

  async onModuleDestroy(): Promise<void> {
    for (const close of this.opened.splice(0)) await close();
  }
}

/** Names the place and the user, and never the password. */
function unreachable(url: string, error: unknown): CliError {
  const { username, host, pathname } = new URL(url);
  const place = `${username === '' ? '' : `${username}@`}${host}${pathname}`;
  return new CliError(exit.unreachable, `no database at ${place}: ${textOf(error)}`);
}
