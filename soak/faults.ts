import { setTimeout as pause } from 'node:timers/promises';
import type { ThrowawayNats } from 'throwaway-nats';
import type { ThrowawayPostgres } from 'throwaway-postgres';
import type { Fleet } from './fleet.js';
import type { PatientPool } from './patient-pool.js';
import type { BrokerFault, Fault } from './plan.js';
import { terminateSql } from './tables.js';

export interface FaultCounts {
  kill: number;
  pause: number;
  /** Sessions that were ended. */
  terminate: number;
  fast: number;
  immediate: number;
  readonly broker: Record<BrokerFault, number>;
}

/** What faults happen to. */
export interface Targets {
  readonly fleet: Fleet;
  readonly server: ThrowawayPostgres;
  readonly database: PatientPool;
  readonly broker: ThrowawayNats | undefined;
}

/** Carries the plan out, one fault after the other; what a restart has delayed comes at once after it. */
export class Faults {
  readonly counts: FaultCounts = {
    kill: 0,
    pause: 0,
    terminate: 0,
    fast: 0,
    immediate: 0,
    broker: { stop: 0, kill: 0, wipe: 0, freeze: 0 },
  };
  /** Those of the broker go on beside the others: workers die and Postgres restarts while it is away. */
  private brokerFaults: Promise<void> = Promise.resolve();

  constructor(
    private readonly targets: Targets,
    private readonly note: (line: string) => void,
  ) {}

  async happen(plan: readonly Fault[], forMs: number, signal: AbortSignal): Promise<void> {
    const began = performance.now();
    const until = (atMs: number) => pause(Math.max(0, began + atMs - performance.now()), undefined, { signal });
    for (const fault of plan) {
      await until(fault.atMs);
      await this.one(fault);
    }
    await until(forMs);
    await this.brokerFaults;
  }

  private async one(fault: Fault): Promise<void> {
    const { fleet, server, database } = this.targets;
    switch (fault.kind) {
      case 'kill':
        this.counts.kill += 1;
        return this.note(`kill worker ${fault.worker} (${fleet.kill(fault.worker)})`);
      case 'pause':
        this.counts.pause += 1;
        return this.note(
          `pause process ${fault.process} (${fleet.pause(fault.process, fault.forMs)}) for ${fault.forMs} ms`,
        );
      case 'terminate': {
        const { application, which, sessions } = fault;
        const ended = await database.rows<{ pid: number }>(terminateSql, [application, which, sessions]);
        this.counts.terminate += ended.length;
        return this.note(`end ${ended.length} sessions of ${application} (${ended.map(({ pid }) => pid).join(', ')})`);
      }
      case 'restart':
        this.counts[fault.how] += 1;
        this.note(`restart the server (${fault.how}), away for ${fault.downMs} ms`);
        await server.pause(fault.how);
        await pause(fault.downMs);
        await server.resume();
        return this.note('the server is back');
      case 'broker':
        this.brokerFaults = this.brokerFaults.then(() => this.toBroker(fault.how, fault.downMs));
        // Who waits for all of them in the end is told.
        this.brokerFaults.catch(() => {});
    }
  }

  private async toBroker(how: BrokerFault, downMs: number): Promise<void> {
    const { broker } = this.targets;
    if (!broker) return;
    this.counts.broker[how] += 1;
    this.note(`nats-server: ${how}, away for ${downMs} ms`);
    if (how === 'freeze') broker.pause();
    else await (how === 'stop' ? broker.stopServer() : broker.kill());
    if (how === 'wipe') await broker.wipe();
    await pause(downMs);
    if (how === 'freeze') broker.unpause();
    else await broker.start();
    this.note('nats-server is back');
  }
}
