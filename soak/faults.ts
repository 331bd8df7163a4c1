import { setTimeout as pause } from 'node:timers/promises';
import type { ThrowawayPostgres } from 'throwaway-postgres';
import type { Fleet } from './fleet.js';
import type { PatientPool } from './patient-pool.js';
import type { Fault } from './plan.js';
import { terminateSql } from './tables.js';

export interface FaultCounts {
  kill: number;
  pause: number;
  /** Sessions that were ended. */
  terminate: number;
  fast: number;
  immediate: number;
}

/** Carries the plan out, one fault after the other; what a restart has delayed comes at once after it. */
export class Faults {
  readonly counts: FaultCounts = { kill: 0, pause: 0, terminate: 0, fast: 0, immediate: 0 };

  constructor(
    private readonly fleet: Fleet,
    private readonly server: ThrowawayPostgres,
    private readonly database: PatientPool,
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
  }

  private async one(fault: Fault): Promise<void> {
    switch (fault.kind) {
      case 'kill':
        this.counts.kill += 1;
        return this.note(`kill worker ${fault.worker} (${this.fleet.kill(fault.worker)})`);
      case 'pause':
        this.counts.pause += 1;
        return this.note(
          `pause process ${fault.process} (${this.fleet.pause(fault.process, fault.forMs)}) for ${fault.forMs} ms`,
        );
      case 'terminate': {
        const { application, which, sessions } = fault;
        const ended = await this.database.rows<{ pid: number }>(terminateSql, [application, which, sessions]);
        this.counts.terminate += ended.length;
        return this.note(`end ${ended.length} sessions of ${application} (${ended.map(({ pid }) => pid).join(', ')})`);
      }
      case 'restart':
        this.counts[fault.how] += 1;
        this.note(`restart the server (${fault.how}), away for ${fault.downMs} ms`);
        await this.server.pause(fault.how);
        await pause(fault.downMs);
        await this.server.resume();
        return this.note('the server is back');
    }
  }
}
