export type { DeliveryContext } from './consume/delivery-context.js';
export type { SubscribeOptions } from './consume/subscribe.decorator.js';
export { Subscribe } from './consume/subscribe.decorator.js';
export type { Cancelled } from './core/cancelled.js';
export type { Duration } from './core/duration.js';
export type { OutboxEvent } from './core/envelope.js';
export type { TransportFactory } from './core/transport.js';
export type { Define, DefineOptions, EventDefinition } from './events/define-event.js';
export { defineCommand, defineEvent } from './events/define-event.js';
export type { EventCatalog, EventName, EventPattern } from './events/event-catalog.js';
export type { CancelTarget, OutgoingEvent, Published, PublishOptions, Unique } from './events/event-publisher.js';
export { EventPublisher } from './events/event-publisher.js';
export type { EventOf, EventRef, PayloadOf, SubscriptionRef } from './events/event-ref.js';
export type { EventManifest } from './events/known-events.js';
export type { ActionOutcome, ManyCounts, ManyOptions, ManyReport, RowOutcome, SendOptions } from './inspect/acting.js';
export type { ActionOptions } from './inspect/audit.js';
export type { CancelOptions, CancelQuery } from './inspect/cancelling.js';
export type { DeliveryInfo, DeliveryState, EventInfo } from './inspect/delivery-info.js';
export type { ExplainQuery, ExplainReason, Explanation, Finding } from './inspect/explain.js';
export { OutboxHealth } from './inspect/health.service.js';
export type {
  DeadLetterFigures,
  DeliveryFigures,
  HealthCode,
  HealthProblem,
  HealthReport,
  HealthStatus,
  JobFigures,
  OverrunFigures,
  RelayFigures,
  RunningJob,
  VacuumHolder,
  WaitingDurable,
  WorkerFigures,
} from './inspect/health-report.js';
export { OutboxInspector } from './inspect/inspector.js';
export type { AttemptInfo, DeliveryFilter, DeliveryPage, EventDetails, PageOptions } from './inspect/listing.js';
export type { DurableOverview, Overview, OverviewQuery } from './inspect/overview.js';
export type { Pause, PauseOptions, PauseTarget } from './inspect/pauses.js';
export type { JobLockInfo, JobRunInfo, PeriodicInfo } from './inspect/periodic-info.js';
export type { EndedDelivery, WaitOptions } from './inspect/waiting.js';
export type { JobContext, PerTenantOptions, RowContext, TenantJobContext } from './jobs/job-context.js';
export type { JobSchedule, PeriodicJobOptions } from './jobs/periodic-job.decorator.js';
export { PeriodicJob } from './jobs/periodic-job.decorator.js';
export type { BootProblem, Stray } from './outbox.errors.js';
export {
  DurableServedError,
  HandlerTimeoutError,
  InterruptedError,
  InvalidEventError,
  NestedTransactionLeftOpenError,
  NotInTransactionError,
  OutboxBootError,
  OutboxError,
  PayloadMismatchError,
  SchemaError,
  SchemaLockedError,
  SnoozeError,
  StrayWriteError,
  SwallowedSqlError,
  TransactionEndedByHandlerError,
  TransactionFinishedError,
  UnrecoverableError,
  UnsupportedDriverError,
} from './outbox.errors.js';
export type { OpenDelivery } from './outbox.inspect-errors.js';
export {
  CancelledError,
  EventNotFoundError,
  InvalidCancelError,
  InvalidQueryError,
  UnknownDurableError,
  WaitStoppedError,
  WaitTimeoutError,
} from './outbox.inspect-errors.js';
export {
  JobLockLostError,
  JobPausedError,
  JobStoppedError,
  JobTimeoutError,
  RowFailedError,
  TenantFailedError,
  UnknownJobError,
} from './outbox.job-errors.js';
export type { OutboxAsyncOptions, OutboxRootOptions } from './outbox.module.js';
export { OutboxModule } from './outbox.module.js';
export type { Backoff } from './outbox.option-checker.js';
export type { DeadLetterNotice, OutboxOptions, OutboxRole } from './outbox.options.js';
export type { DeadLetter, DeadLetterQuery } from './recover/dead-letters.service.js';
export { DeadLetters } from './recover/dead-letters.service.js';
export type { DurableState, RetireOptions } from './recover/durables.service.js';
export { Durables } from './recover/durables.service.js';
export type { GrantOptions } from './tables/schema/grants.js';
export type { SchemaOptions } from './tables/schema/outbox-schema.js';
export { outboxSchema } from './tables/schema/outbox-schema.js';
export { Outbox } from './transactions/outbox.js';
export { memory, postgres } from './transports/postgres/postgres.transport.js';
