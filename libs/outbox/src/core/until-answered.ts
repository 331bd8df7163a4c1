import { setTimeout as pause } from 'node:timers/promises';
import { loopBackoff } from './backoff.js';
import { databaseTrouble } from './database-errors.js';
import type { ThrottledLog } from './throttled-log.js';

/** At boot a database that is not up yet, or goes away again, is waited for, and said so; it is no reason to refuse. */
export async function untilAnswered<T>(work: () => T | Promise<T>, log: ThrottledLog): Promise<T> {
  for (let tries = 1; ; tries++) {
    try {
      return await work();
    } catch (error) {
      if (databaseTrouble(error) !== 'outage') throw error;
      log.warn('database', `waiting for the database: ${(error as Error).message}`);
      await pause(loopBackoff(tries, 100, 5_000));
    }
  }
}
