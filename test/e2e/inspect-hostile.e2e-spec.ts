import { OutboxInspector } from 'nestjs-outbox';
import { useStage } from '../support/stage.js';

const texts = [
  '',
  ' ',
  '\0',
  'a\0b',
  '\ud800',
  'a\udfffb',
  '😀',
  "'; DROP TABLE outbox.events; --",
  '"quoted" \\ back',
  '%_*',
  '{}',
  'null',
  '__proto__',
  'constructor',
  '-1',
  'x'.repeat(300),
  'x'.repeat(200_000),
  'test.thing.done',
  'ffffffff-ffff-ffff-ffff-ffffffffffff',
  '00000000-0000-0000-0000-000000000000',
  '00000000-0000-0000-0000-00000000000g',
];
const dates = [0, -1, -1e15, 8.64e15, -8.64e15, Number.NaN, 253_402_300_800_000].map((ms) => new Date(ms));
const numbers = [-1, 0, 1.5, Number.NaN, Number.POSITIVE_INFINITY, 1e300, 2 ** 53, -(2 ** 31)];

describe('what people may type', () => {
  const stage = useStage();

  it('is refused in the words of the library, or matches nothing, whatever it is', async () => {
    const app = await stage.boot({ outbox: { role: 'publisher' } });
    const inspector = app.app.get(OutboxInspector);
    const wrong: string[] = [];
    const tried = async (what: string, value: unknown, call: () => Promise<unknown>): Promise<void> => {
      const shown = `${what} ${String(value instanceof Date ? value.getTime() : JSON.stringify(value)).slice(0, 40)}`;
      try {
        await call();
      } catch (error) {
        const { code = '', message, name } = error as Error & { code?: string };
        if (!/^OUTBOX_/.test(String(code)) && !/^(wait|explain): /.test(message))
          wrong.push(`${shown}: ${name} ${code} ${message.slice(0, 200)}`);
      }
    };
    for (const text of texts) {
      for (const key of ['durable', 'type', 'tenantId', 'subject', 'eventId', 'error'] as const) {
        const filter = { [key]: text };
        await tried(`list ${key}`, text, () => inspector.list(filter));
        await tried(`retryMany ${key}`, text, () => inspector.retryMany(filter));
        await tried(`retryMany dry ${key}`, text, () => inspector.retryMany(filter, { dryRun: true }));
        await tried(`discard ${key}`, text, () => inspector.discard(filter));
      }
      await tried('state', text, () => inspector.list({ state: text as 'pending' }));
      await tried('discard state', text, () => inspector.discard({ state: text as 'pending' }));
      await tried('cursor', text, () => inspector.list({}, { cursor: text }));
      await tried('overview', text, () => inspector.overview({ type: text }));
      await tried('get', text, () => inspector.get(text));
      for (const key of ['id', 'subject', 'unique'] as const) {
        await tried(`explain ${key}`, text, () => inspector.explain({ [key]: text }));
        await tried(`explain ${key} of tenant`, text, () =>
          inspector.explain({ [key]: text, tenantId: text, type: text }),
        );
      }
      await tried('wait', text, () => inspector.wait(text, { timeout: 1 }));
      await tried('wait timeout', text, () =>
        inspector.wait('019a2b3c-0000-7000-8000-000000000000', { timeout: text as '1s' }),
      );
      await tried('cancel id', text, () => inspector.cancel({ id: text }));
      await tried('cancel unique', text, () => inspector.cancel({ event: text, unique: text, tenantId: text }));
      await tried('cancel unique', text, () => inspector.cancel({ event: 'test.thing.done', unique: text }));
      await tried('cancel subject', text, () => inspector.cancel({ event: text, subject: text, tenantId: text }));
      await tried('cancel subject', text, () => inspector.cancel({ event: 'test.thing.done', subject: text }));
      await tried('retry', text, () => inspector.retry(text, text));
      await tried('retry durable', text, () => inspector.retry('019a2b3c-0000-7000-8000-000000000000', text));
      await tried('send', text, () => inspector.send(text, { to: text }));
      await tried('send to', text, () =>
        inspector.send('019a2b3c-0000-7000-8000-000000000000', { to: text, force: true }),
      );
      for (const key of ['durable', 'type', 'tenantId', 'job'] as const) {
        await tried(`pause ${key}`, text, () =>
          inspector.pause({ [key]: text } as never, { until: new Date(Date.now() + 1_000) }),
        );
        await tried(`resume ${key}`, text, () => inspector.resume({ [key]: text } as never));
      }
      await tried('pause by', text, () => inspector.pause({ tenantId: 'a' }, { by: text, reason: text }));
      await tried('resume by', text, () => inspector.resume({ tenantId: 'a' }, { by: text, reason: text }));
      await tried('cancel by', text, () =>
        inspector.cancel({ id: '019a2b3c-0000-7000-8000-000000000000' }, { by: text, reason: text }),
      );
      await tried('retry by', text, () =>
        inspector.retry('019a2b3c-0000-7000-8000-000000000000', 'x', { by: text, reason: text }),
      );
      await tried('retire', text, () => inspector.retire(text));
      await tried('retire by', text, () => inspector.retire('x', { by: text, reason: text }));
      await tried('runPeriodic', text, () => inspector.runPeriodic(text));
      await tried('runPeriodic by', text, () => inspector.runPeriodic('outbox', { by: text, reason: text }));
    }
    for (const date of dates) {
      for (const key of ['from', 'to'] as const) {
        await tried(`list ${key}`, date, () => inspector.list({ [key]: date }));
        await tried(`discard ${key}`, date, () => inspector.discard({ [key]: date }));
        await tried(`retryMany ${key}`, date, () =>
          inspector.retryMany({ [key]: date, state: ['retryable', 'discarded'] }),
        );
      }
      await tried('pause until', date, () => inspector.pause({ tenantId: 'until' }, { until: date }));
    }
    for (const limit of numbers) {
      await tried('list limit', String(limit), () => inspector.list({}, { limit }));
      await tried('discard limit', String(limit), () => inspector.discard({}, { limit }));
      await tried('wait timeout', String(limit), () =>
        inspector.wait('019a2b3c-0000-7000-8000-000000000000', { timeout: Math.min(limit, 1) }),
      );
    }
    await tried('pauses', '', () => inspector.pauses());
    expect(wrong).toEqual([]);
  }, 120_000);
});
