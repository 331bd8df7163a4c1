import type { Database } from '../tables/database.js';
import type { ActionOptions } from './audit.js';

/** One of four. `type` may be a pattern. */
export type PauseTarget =
  | { readonly durable: string }
  | { readonly type: string }
  | { readonly tenantId: string }
  | { readonly job: string };

export interface PauseOptions extends ActionOptions {
  /** Ends by itself then. Default: never. */
  readonly until?: Date;
}

/** What is paused, since when, until when, by whom and why. */
export interface Pause {
  readonly id: number;
  readonly kind: 'durable' | 'type' | 'tenant' | 'job';
  readonly name: string;
  readonly since: Date;
  readonly until: Date | null;
  readonly by: string | null;
  readonly reason: string | null;
}

export class Pauses {
  constructor(private readonly database: Database) {}

  async pause(_target: PauseTarget, _options: PauseOptions = {}): Promise<Pause> {
    throw new Error(`not built ${this.database.schema}`);
  }

  /** Resolves to false when it was not paused. */
  async resume(_target: PauseTarget, _options: ActionOptions = {}): Promise<boolean> {
    throw new Error(`not built ${this.database.schema}`);
  }

  async list(): Promise<readonly Pause[]> {
    throw new Error(`not built ${this.database.schema}`);
  }
}
