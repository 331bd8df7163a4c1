import { type OutboxOptions, OutboxSettings } from './outbox.options.js';
import { postgres } from './transports/postgres/postgres.transport.js';

const problems = (options: unknown): string[] =>
  new OutboxSettings(options as OutboxOptions, postgres()).problems.map((p) => p.message);

describe('options', () => {
  it('have the documented defaults', () => {
    const settings = new OutboxSettings({}, postgres());
    expect(settings).toMatchObject({
      role: 'all',
      schema: 'outbox',
      onStart: 'verify',
      maxAttempts: 10,
      timeoutMs: 30_000,
      relayBatch: 500,
      pollMs: 1_000,
      retentionMs: 604_800_000,
      retentionSchedule: '17 * * * *',
      maxEventBytes: 524_288,
      drainMs: 10_000,
      handlerConcurrency: undefined,
      repositories: 'guard',
      tenancy: false,
    });
    expect(settings.transport.name).toBe('postgres');
    expect(settings.backoff(9, undefined)).toBeGreaterThanOrEqual(19_440_000);
    expect(Object.isFrozen(settings)).toBe(true);
  });

  it.each([
    [{ rol: 'worker' }, "'rol'", "'role'"],
    [{ relay: { bacth: 1 } }, "'relay.bacth'", "'batch'"],
    [{ transactions: { repository: 'join' } }, "'transactions.repository'", "'repositories'"],
    [{ transactions: { repositories: 'joined' } }, 'transactions.repositories', "'join'"],
    [{ role: 'workers' }, 'role', "'worker'"],
    [{ drain: '10' }, 'drain', 'unit'],
    [{ handlers: { timeout: 30 } }, 'handlers.timeout', 'unit'],
    [{ handlers: { timeout: '365d' } }, 'handlers.timeout', "'22d'"],
    [{ relay: { poll: '30d' } }, 'relay.poll', "'22d'"],
    [{ drain: '52w' }, 'drain', "'22d'"],
    [{ retention: { after: '8d' } }, 'retention.after', "from '1d' to '7d'"],
    [{ retention: { after: '23h' } }, 'retention.after', "from '1d' to '7d'"],
    [{ retention: { after: 7 } }, 'retention.after', 'unit'],
    [{ retention: { afer: '7d' } }, "'retention.afer'", "'after'"],
    [{ handlers: { backoff: [] } }, 'handlers.backoff', 'at least one'],
    [{ handlers: { backoff: ['1s', 'soon'] } }, 'handlers.backoff[1]', 'unit'],
    [{ handlers: { maxAttempts: 0 } }, 'handlers.maxAttempts', '1 to 1000'],
    [{ relay: { batch: 1.5 } }, 'relay.batch', 'whole number'],
    [{ transport: 'nats' }, 'transport', 'postgres()'],
    [{ schema: { name: 'Outbox' } }, 'Outbox', 'lower-case'],
    [{ schema: { name: 'public' } }, 'public', 'of its own'],
    [{ schema: 'outbox' }, 'schema', 'object'],
  ])('%j is refused by name, with the remedy', (options, name, remedy) => {
    const [first, ...more] = problems(options);
    expect(first).toContain(name);
    expect(first).toContain(remedy);
    expect(more).toEqual([]);
  });

  it.each([
    ['1d', 86_400_000],
    ['36h', 129_600_000],
    ['1w', 604_800_000],
  ])('events may be kept for %s', (after, milliseconds) => {
    const settings = new OutboxSettings({ retention: { after } } as OutboxOptions, postgres());
    expect(settings).toMatchObject({ problems: [], retentionMs: milliseconds });
  });

  it('all problems are told at once', () => {
    expect(problems({ rol: 1, drain: 'x', relay: { batch: 0 } })).toHaveLength(3);
  });
});
