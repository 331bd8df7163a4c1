import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { memory } from 'nestjs-outbox';
import { eventually } from '../support/eventually.js';
import { effect, subscriber, useStage } from '../support/stage.js';

const event = 'test.work.asked';
const ofWorker = ['jobs', 'relay', 'wake', 'worker', 'worker lock'];

describe('connections beside the pool', () => {
  const stage = useStage();

  /** What the sessions of the library are called, one entry for each, without the name that they share. */
  const sessions = async () => {
    const rows = await stage.database.query<{ name: string }>(
      `SELECT substr(application_name, 15) AS name FROM pg_stat_activity
       WHERE datname = current_database() AND application_name LIKE 'nestjs-outbox%' ORDER BY 1`,
    );
    return rows.map(({ name }) => name);
  };
  /** Waits for them, and looks again when work has been done: no more may have come. */
  const exactly = async (...names: string[]) => {
    let seen: string[] = [];
    await eventually(`the sessions ${names.join(', ')}`, async () => {
      seen = await sessions();
      return seen.join() === names.join();
    }).catch(() => expect(seen).toEqual(names));
  };
  const effects = () => stage.database.value<number>('SELECT count(*)::int FROM effects');

  it('are five in a worker, before its first event and after', async () => {
    const worker = await stage.boot({
      manifest: { emits: [event] },
      providers: [subscriber(event, 'first', effect), subscriber(event, 'second', effect)],
    });
    await exactly(...ofWorker);
    await worker.dataSource.transaction(() =>
      worker.publisher.publishMany(Array.from({ length: 50 }, (_, n) => ({ event, payload: { n } }))),
    );
    await stage.drained();
    expect(await effects()).toBe(100);
    expect(await sessions()).toEqual(ofWorker);
    await worker.close();
    await exactly();
  });

  it('are one less with memory(), which nobody wakes from outside', async () => {
    const worker = await stage.boot({
      manifest: { emits: [event] },
      providers: [subscriber(event, 'first', effect)],
      outbox: { transport: memory() },
    });
    const alone = ofWorker.filter((name) => name !== 'wake');
    await exactly(...alone);
    await worker.publisher.publishNow(event, {});
    await stage.drained('first');
    expect(await sessions()).toEqual(alone);
    await worker.close();
  });

  it('are none in a publisher before its first publish, and one from then on', async () => {
    const publisher = await stage.boot({ manifest: { emits: [event] }, outbox: { role: 'publisher' } });
    await publisher.dataSource.query('SELECT 1');
    expect(await sessions()).toEqual([]);
    for (let n = 0; n < 5; n++) await publisher.publisher.publishNow(event, {});
    await exactly('publisher');
    await publisher.close();
  });

  it('become one more in a worker that cannot record an outcome otherwise, and one that forgets what is old', async () => {
    const worker = await stage.boot({
      manifest: { emits: [event] },
      providers: [
        subscriber(event, 'hangs', () => new Promise(() => {}), { timeout: '200ms', maxAttempts: 1 }),
        subscriber(event, 'first', effect),
        subscriber(event, 'second', effect),
      ],
      outbox: { retention: { schedule: '* * * * * *' }, drain: '100ms' },
    });
    await worker.publisher.publishNow(event, {});
    await eventually('a session for records', async () => (await sessions()).includes('records'));
    await eventually('a session that forgets', async () => (await sessions()).includes('purge'));
    const known = [...ofWorker, 'records', 'purge'];
    expect((await sessions()).filter((name) => !known.includes(name))).toEqual([]);
    await worker.close();
  });

  it('are those that the guide names, whatever the code opens', () => {
    const sources = readdirSync('libs/outbox/src', { recursive: true, encoding: 'utf8' })
      .filter((file) => file.endsWith('.ts') && !file.endsWith('.spec.ts'))
      .map((file) => readFileSync(join('libs/outbox/src', file), 'utf8'));
    const opened = sources.flatMap((text) => names(text, /\.infrastructure\(\s*'([a-z ]+)'/g));
    const [, section = ''] = readFileSync('docs/guide/operate.md', 'utf8').split('\n## Connections\n');
    const named = names(section.split('\n## ', 1).join(), /`nestjs-outbox ([a-z ]+)`/g);
    expect([...new Set(named)].sort()).toEqual([...new Set(opened)].sort());
    expect(opened).toEqual(expect.arrayContaining([...ofWorker, 'records', 'purge', 'publisher']));
  });
});

function names(text: string, pattern: RegExp): string[] {
  return [...text.matchAll(pattern)].map(([, name = '']) => name);
}
