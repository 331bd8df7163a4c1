import * as outbox from './index.js';
import * as testing from './testing/index.js';

describe('the public names', () => {
  it('are these, and change on purpose only', () => {
    expect(Object.keys(outbox).sort()).toEqual([
      'CancelledError',
      'DeadLetters',
      'DurableServedError',
      'Durables',
      'EventNotFoundError',
      'EventPublisher',
      'HandlerTimeoutError',
      'InterruptedError',
      'InvalidCancelError',
      'InvalidEventError',
      'InvalidQueryError',
      'JobLockLostError',
      'JobPausedError',
      'JobStoppedError',
      'JobTimeoutError',
      'NestedTransactionLeftOpenError',
      'NotInTransactionError',
      'Outbox',
      'OutboxBootError',
      'OutboxError',
      'OutboxHealth',
      'OutboxInspector',
      'OutboxModule',
      'PayloadMismatchError',
      'PeriodicJob',
      'RowFailedError',
      'SchemaError',
      'SchemaLockedError',
      'SnoozeError',
      'StrayWriteError',
      'Subscribe',
      'SwallowedSqlError',
      'TenantFailedError',
      'TransactionEndedByHandlerError',
      'TransactionFinishedError',
      'UnknownDurableError',
      'UnknownJobError',
      'UnrecoverableError',
      'UnsupportedDriverError',
      'WaitStoppedError',
      'WaitTimeoutError',
      'defineCommand',
      'defineEvent',
      'memory',
      'outboxSchema',
      'postgres',
    ]);
    expect(Object.keys(testing).sort()).toEqual(['checkOutbox', 'describeQueue', 'describeTransport']);
  });

  it('every error has a code of its own', () => {
    const codes = [
      new outbox.NotInTransactionError('a.b.c'),
      new outbox.TransactionFinishedError('it'),
      new outbox.InvalidEventError('a.b.c', 'payload', 'is wrong'),
      new outbox.PayloadMismatchError('d', 'a.b.c', 'id', 'payload', 'is wrong'),
      new outbox.UnrecoverableError('no'),
      new outbox.SnoozeError('1s'),
      new outbox.HandlerTimeoutError('d', 'id', 1),
      new outbox.SwallowedSqlError('d'),
      new outbox.TransactionEndedByHandlerError('d'),
      new outbox.NestedTransactionLeftOpenError('d'),
      new outbox.StrayWriteError({ called: 'it', kind: 'write', durable: 'd', file: undefined, line: undefined }),
      new outbox.InterruptedError('d', 6),
      new outbox.InvalidCancelError('id', 'is wrong'),
      new outbox.CancelledError('d', 'id'),
      new outbox.TenantFailedError('job', 'tenant', 'it'),
      new outbox.RowFailedError('job', 0, {}, 'it'),
      new outbox.JobTimeoutError('job', 1),
      new outbox.JobLockLostError('job'),
      new outbox.JobStoppedError('job'),
      new outbox.UnknownJobError('job', []),
      new outbox.JobPausedError('job', { since: new Date(0), until: null, by: null, reason: null }),
      new outbox.OutboxBootError([]),
      new outbox.SchemaLockedError(1, 10, {}),
      new outbox.DurableServedError('d'),
      new outbox.SchemaError('x'),
      new outbox.UnsupportedDriverError('x'),
    ].map((error) => error.code);
    expect(new Set(codes).size).toBe(codes.length);
    expect(codes.every((code) => /^OUTBOX_[A-Z_]+$/.test(code))).toBe(true);
  });
});
