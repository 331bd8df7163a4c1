import { setTimeout as pause } from 'node:timers/promises';
import { eventually } from '../../support/eventually.js';
import { backends, FaultSite, holdTable } from './fault-site.js';

/** Longer than any poll or sweep, so that everybody has had the time to take over what they should not. */
const pausedMs = 3_000;

describe('a paused process', () => {
  let site: FaultSite;

  beforeEach(async () => {
    site = await FaultSite.open();
  });

  afterEach(() => site?.close());

  it('in the middle of a handler: others work on, and what it holds is done once, by it', async () => {
    const first = await site.worker({ HOLD: 'on' });
    const held = await site.ask(...Array.from({ length: 12 }, () => ({ hold: true })));
    await eventually('four run', () => first.reports.filter((report) => report.kind === 'started').length === 4);
    first.signal('SIGSTOP');
    await site.worker();
    const others = await site.ask({}, {}, {}, {});
    await site.handledOnce(others);
    await pause(pausedMs);
    expect(Object.keys(await site.runs())).toHaveLength(4 + others.length);
    first.signal('SIGCONT');
    first.go();
    await site.handledOnce([...held, ...others]);
    expect(await site.runs()).toEqual(Object.fromEntries([...held, ...others].map((id) => [id, 1])));
    expect(await site.interruptions()).toEqual({});
    expect(await site.attemptsCharged()).toBe(0);
  });

  it('in the middle of a relay pass: others relay on, and what it took is handled once', async () => {
    const first = await site.worker();
    const table = await holdTable(site.database, 'outbox.deliveries');
    const taken = await site.ask({}, {}, {});
    await backends(site.database, 'nestjs-outbox relay', `wait_event_type = 'Lock'`);
    first.signal('SIGSTOP');
    await table.release();
    await site.worker();
    const others = await site.ask({}, {}, {});
    await site.handledOnce(others);
    await pause(pausedMs);
    expect(Object.keys(await site.runs()).sort()).toEqual([...others].sort());
    first.signal('SIGCONT');
    await site.handledOnce([...taken, ...others]);
    expect(await site.runs()).toEqual(Object.fromEntries([...taken, ...others].map((id) => [id, 1])));
    expect(await site.interruptions()).toEqual({});
  });

  it('whose lock the server ended meanwhile: its rows are done by others, and it does nothing twice when it wakes', async () => {
    const first = await site.worker({ HOLD: 'on' });
    const held = await site.ask(...Array.from({ length: 12 }, () => ({ hold: true })));
    await eventually('four run', () => first.reports.filter((report) => report.kind === 'started').length === 4);
    first.signal('SIGSTOP');
    const [lock] = await backends(site.database, 'nestjs-outbox worker lock');
    const second = await site.worker();
    await site.database.query('SELECT pg_terminate_backend($1)', [lock]);
    // The eight that wait in the paused process's memory; those that run there are locked by their transactions.
    await eventually('eight run elsewhere', () => {
      return second.reports.filter((report) => report.kind === 'finished').length === 8;
    });
    first.signal('SIGCONT');
    first.go();
    await site.handledOnce(held);
    expect(await site.runs()).toEqual(Object.fromEntries(held.map((id) => [id, 1])));
    expect(await site.attemptsCharged()).toBe(0);
    const after = await site.ask({}, {}, {}, {}, {}, {});
    await site.handledOnce(after);
  });
});
