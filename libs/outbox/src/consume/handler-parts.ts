import type { ThrottledLog } from '../core/throttled-log.js';
import type { Database } from '../tables/database.js';
import type { CommitWatcher } from '../transactions/commit-watcher.js';
import type { TransactionFollower } from '../transactions/transaction-follower.js';
import type { DeliveryRecords } from './delivery-records.js';
import type { LateRecorder } from './late-recorder.js';

/** What the handling of a delivery stands on. */
export interface HandlerParts {
  readonly database: Database;
  readonly follower: TransactionFollower;
  readonly commits: CommitWatcher;
  readonly recorder: LateRecorder;
  readonly records: DeliveryRecords;
  readonly throttled: ThrottledLog;
}
