import { SnoozeError, UnrecoverableError } from '../outbox.errors.js';
import { decide, mostSnoozes } from './decision.js';
import type { Subscription } from './subscription.js';

const subscription = { maxAttempts: 3, delayOf: (attempt: number) => attempt * 1_000 } as unknown as Subscription;
const failure = { error: new Error('x'), attempt: 1, snoozes: 0, stopping: false, cancelled: false };

describe('what becomes of a failed delivery', () => {
  it('climbs the ladder until the last attempt', () => {
    expect(decide(failure, subscription)).toEqual({ kind: 'retry', delayMs: 1_000 });
    expect(decide({ ...failure, attempt: 2 }, subscription)).toEqual({ kind: 'retry', delayMs: 2_000 });
    expect(decide({ ...failure, attempt: 3 }, subscription)).toEqual({ kind: 'dead' });
  });

  it('gives up at once when no attempt can help', () => {
    expect(decide({ ...failure, error: new UnrecoverableError('no') }, subscription)).toEqual({ kind: 'dead' });
  });

  it('knows the error classes by code, as two copies of the package may be installed', () => {
    const foreign = Object.assign(new Error('later'), { code: 'OUTBOX_SNOOZE', delayMs: 5_000 });
    expect(decide({ ...failure, error: foreign }, subscription)).toEqual({ kind: 'snooze', delayMs: 5_000 });
  });

  it('snoozes even on the last attempt, but not for ever', () => {
    const last = { ...failure, attempt: 3, error: new SnoozeError('10m') };
    expect(decide(last, subscription)).toEqual({ kind: 'snooze', delayMs: 600_000 });
    expect(decide({ ...last, snoozes: mostSnoozes }, subscription)).toEqual({ kind: 'dead' });
  });

  it('ends as cancelled, whatever the error and also at a stop, once somebody asked for that', () => {
    const cancelled = { ...failure, cancelled: true, attempt: 3 };
    expect(decide(cancelled, subscription)).toEqual({ kind: 'cancel' });
    expect(decide({ ...cancelled, stopping: true }, subscription)).toEqual({ kind: 'cancel' });
    expect(decide({ ...cancelled, error: new UnrecoverableError('no') }, subscription)).toEqual({ kind: 'cancel' });
  });

  it('charges nothing once the process is stopping', () => {
    expect(decide({ ...failure, stopping: true, attempt: 3 }, subscription)).toEqual({ kind: 'uncharged' });
  });

  it('falls back to the default ladder when a backoff function throws', () => {
    const broken = {
      ...subscription,
      delayOf: () => {
        throw new Error('broken');
      },
    } as Subscription;
    expect(decide(failure, broken)).toEqual({ kind: 'retry', delayMs: 2_000 });
  });
});
