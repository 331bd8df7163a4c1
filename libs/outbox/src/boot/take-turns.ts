import type { ClientBase, QueryResult } from 'pg';
import { DeadlineExceeded, withDeadline } from '../core/deadline.js';

/** Rounds of two transactions that overlap, twenty in all; each round is four round trips. */
const rounds = 10;
/** A transaction that has not begun after so many looks, at each of which the other one answers, waits for a pooler. */
const looks = 3;
const lookMs = 1_000;

export type Pair = readonly [ClientBase, ClientBase];

/** Two transactions do not get in at a time: a pooler is in between, and has one session of the server for us. */
export class OneSessionOnly extends Error {}

export interface Turns {
  /** One client's transactions ran in several sessions. */
  readonly moved: boolean;
  /** What `ask` was in each transaction of the first client. */
  readonly said: readonly boolean[];
}

/**
 * Two clients begin and end transactions in all orders in turn: some poolers lend the session that was given back last,
 * others the first. `ask` is an expression; `also` runs inside each transaction. After `OneSessionOnly` the clients are
 * of no use: one waits, and the other is in a transaction.
 */
export async function takeTurns(
  clients: Pair,
  ask = 'true',
  also: (client: ClientBase) => Promise<unknown> = async () => {},
): Promise<Turns> {
  const sessions = new Map(clients.map((client) => [client, new Set<number>()]));
  const said: boolean[] = [];
  for (let round = 0; round < rounds; round++) {
    const [first, second] = ordered(clients, round % 2 === 0);
    for (const client of [first, second]) {
      // As one message: BEGIN, and who we are. Node-postgres answers with a result for each.
      const asked: Promise<unknown> = client.query(`BEGIN; SELECT pg_backend_pid() AS pid, ${ask} AS said`);
      const answer = await (client === first ? asked : besides(first, asked));
      const [{ pid, said: yes }] = (answer as [unknown, QueryResult])[1].rows;
      sessions.get(client)?.add(pid);
      if (client === clients[0]) said.push(yes);
      await also(client);
    }
    for (const client of ordered(clients, round % 4 < 2)) await client.query('COMMIT');
  }
  return { moved: [...sessions.values()].some((pids) => pids.size > 1), said };
}

/** The answer, unless it is kept waiting while `other` gets its own: a slow server would be slow to both. */
async function besides<T>(other: ClientBase, asked: Promise<T>): Promise<T> {
  for (let look = 0; look < looks; look++) {
    try {
      return await withDeadline('a second session', lookMs, asked);
    } catch (error) {
      if (!(error instanceof DeadlineExceeded)) throw error;
    }
    await other.query('SELECT 1');
  }
  asked.catch(() => {});
  throw new OneSessionOnly('a second transaction waits for the first one to end');
}

function ordered([one, other]: Pair, straight: boolean): Pair {
  return straight ? [one, other] : [other, one];
}
