import assert from 'node:assert/strict';
import type { TransportCapabilities, TransportFactory } from '../../core/transport.js';
import type { TransportSetup } from '../probe-site.js';
import { cancelling } from './cancel.js';
import { type Contract, Crew, type QueueTestApi } from './crew.js';
import { explaining } from './explain.js';
import { faults } from './faults.js';
import { runningLater } from './later.js';
import { listing } from './listing.js';
import { operating } from './operate.js';
import { pausing } from './pause.js';
import { periodicJobs } from './periodic.js';
import { publishing } from './publish.js';
import { retrying } from './retry.js';
import { states } from './states.js';
import { uniqueEvents } from './unique.js';
import { waiting } from './wait.js';

export type { QueueTestApi } from './crew.js';

/**
 * The queue's contract as behaviour, the same on every transport: what is published, looked at and done about it through
 * the public surface alone, on whole apps and a real database. `describeTransport` has the transport's own side: load,
 * many processes, lost connections. What a transport cannot do is said in `capabilities`.
 */
export function describeQueue(
  name: string,
  /** Called for each app; `run` names the database, for a broker that several tests share. */
  makeTransport: (run: string) => TransportFactory,
  capabilities: TransportCapabilities,
  setup: TransportSetup,
  api: QueueTestApi = globalThis as unknown as QueueTestApi,
): void {
  const contract: Contract = { api, capabilities, makeTransport, setup };
  api.describe(`queue over ${name}`, () => {
    api.it('declares its capabilities', async () =>
      assert.deepEqual(makeTransport('declares').capabilities, capabilities),
    );
    const crew = new Crew(contract);
    crew.hooks();
    publishing(crew);
    runningLater(crew);
    uniqueEvents(crew);
    cancelling(crew);
    states(crew);
    listing(crew);
    explaining(contract, crew);
    retrying(crew);
    operating(crew);
    pausing(contract, crew);
    waiting(crew);
    periodicJobs(contract);
    faults(contract, crew);
  });
}
