import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createDatabase, type TestDatabase } from '../support/test-database.js';

interface Ended {
  readonly code: number | null;
  readonly lines: readonly string[];
  readonly errors: string;
  /** What it left in its temporary folder. */
  readonly left: readonly string[];
}

describe('the demo', () => {
  let database: TestDatabase;
  let folder: string;
  let running: ChildProcess | undefined;

  /** The built demo in a process of its own, with a temporary folder of its own. */
  async function demo(args: readonly string[], url = database.url): Promise<Ended> {
    const temporary = await mkdtemp(join(folder, 'run-'));
    const child = spawn(process.execPath, [join(process.cwd(), 'dist/src/main.js'), ...args], {
      env: { ...process.env, DATABASE_URL: url, TMPDIR: temporary },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    running = child;
    const out: string[] = [];
    const errors: string[] = [];
    child.stdout.on('data', (data) => out.push(String(data)));
    child.stderr.on('data', (data) => errors.push(String(data)));
    const [code] = await once(child, 'close');
    const lines = out.join('').trimEnd().split('\n');
    return { code, lines, errors: errors.join(''), left: await readdir(temporary) };
  }

  function result(ended: Ended): Record<string, unknown> {
    try {
      return JSON.parse(ended.lines.at(-1) ?? '');
    } catch {
      throw new Error(`the last line is no JSON; exit code ${ended.code}, stderr: ${ended.errors}`);
    }
  }

  beforeAll(async () => {
    database = await createDatabase();
    folder = await mkdtemp(join(tmpdir(), 'outbox-demo-spec-'));
  });

  afterAll(async () => {
    // The role is the server's and would outlive the database.
    await database?.query(`DO $$ BEGIN IF EXISTS (SELECT 1 FROM pg_roles WHERE rolname = 'outbox_demo') THEN
      DROP OWNED BY outbox_demo; DROP ROLE outbox_demo; END IF; END $$`);
    await database?.drop();
    await rm(folder, { recursive: true, force: true });
  });

  // A test that timed out must not leave its demo to the next one.
  afterEach(async () => {
    if (!running || running.exitCode !== null || running.signalCode !== null) return;
    const closed = once(running, 'close');
    running.kill('SIGKILL');
    await closed;
  });

  it('handles every event once, lets failing mails recover and one end as a dead letter', async () => {
    const ended = await demo(['--once', '--events', '60']);
    // 57 invoices for three durables and 3 blobs for one; two greylisted mails are turned away twice, one mail always.
    expect(result(ended)).toEqual({
      ok: true,
      published: 60,
      handled: 57 * 3 + 3 - 1,
      handledTwice: 0,
      lost: 0,
      retried: 2 * 2 + 3,
      deadLetters: 1,
      seconds: expect.any(Number),
    });
    expect(ended.code).toBe(0);
    expect(ended.left).toEqual([]);
  });

  it('loses nothing and repeats nothing while its workers are killed at random', async () => {
    const ended = await demo(['--once', '--events', '200', '--workers', '2', '--kill']);
    const { ok, published, handledTwice, lost, kills } = result(ended);
    expect({ ok, published, handledTwice, lost }).toEqual({ ok: true, published: 200, handledTwice: 0, lost: 0 });
    expect(kills).toBeGreaterThan(0);
    expect(ended.code).toBe(0);
    expect(ended.left).toEqual([]);
  }, 180_000);

  it('publishes the lines of a file, and names the line that is at fault', async () => {
    const file = join(folder, 'events.ndjson');
    const paid = {
      type: 'billing.invoice.paid',
      tenant: 'acme',
      payload: { invoiceId: '1', cents: 100, email: 'a@b.c' },
    };
    await writeFile(file, `${JSON.stringify(paid)}\n${JSON.stringify({ ...paid, tenant: 'initech' })}\n`);
    const good = await demo(['--once', '--input', file]);
    expect(result(good)).toMatchObject({ ok: true, published: 2, handled: 6, deadLetters: 0 });
    await writeFile(file, `${JSON.stringify(paid)}\n{"type":"billing.invoice.paid"\n`);
    const bad = await demo(['--once', '--input', file]);
    expect(bad.errors).toMatch(/^demo: .*events\.ndjson, line 2: is no JSON.*\n$/);
    expect(bad.code).toBe(2);
  });

  it.each([
    [['--nonsense'], /^demo: Unknown option '--nonsense'.*\n$/],
    [['--once', '--events', 'many'], /^demo: --events is 'many'; it is a whole number.*\n$/],
    [['--once', '--input', '/nowhere/events.ndjson'], /^demo: there is no file \/nowhere\/events\.ndjson\n$/],
  ])('refuses %j with one line', async (args, line) => {
    const ended = await demo(args);
    expect(ended.errors).toMatch(line);
    expect(ended.code).toBe(2);
  });

  it('says in one line that the database cannot be reached', async () => {
    const ended = await demo(['--once'], 'postgres://nobody:secret@127.0.0.1:1/absent');
    expect(ended.errors).toMatch(/^demo: cannot connect to the database 127\.0\.0\.1:1\/absent: .*ECONNREFUSED.*\n$/);
    expect(ended.errors).not.toContain('secret');
    expect(ended.code).toBe(1);
  });
});
