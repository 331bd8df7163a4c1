import { cpSync, mkdirSync, mkdtempSync, readdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { outboxSchema } from 'nestjs-outbox';
import { type CliRun, cli } from '../support/cli.js';
import { nothingIsLeft } from '../support/stage.js';
import { createDatabase, type TestDatabase } from '../support/test-database.js';
import { createRole, describeWithRoles, type TestRole } from '../support/test-role.js';

const modules = join(process.cwd(), 'dist/test/support/check-modules.js');
const stack = /\n\s+at /;

/** It ended so, said this on stderr, and showed nobody a stack. */
function failed(run: CliRun, code: number, said: RegExp): void {
  expect({ code: run.code, err: run.err }).toEqual({ code, err: expect.stringMatching(said) });
  expect(run.out + run.err).not.toMatch(stack);
}

describe('the command line', () => {
  let database: TestDatabase;
  let folder: string;
  const run = (...args: string[]): Promise<CliRun> => cli(args, { url: database.url, cwd: folder });

  beforeAll(async () => {
    database = await createDatabase();
    folder = mkdtempSync(join(tmpdir(), 'outbox-cli-'));
    expect(await run('migrate')).toMatchObject({ code: 0, out: expect.stringContaining('was at version 0') });
  });
  afterEach(async () => {
    await database.query('TRUNCATE outbox.queue, outbox.durables, outbox.dead_letters RESTART IDENTITY');
  });
  afterAll(async () => {
    try {
      // A process that handles nothing takes no number, registers nothing, and leaves no session.
      await nothingIsLeft(database);
      expect(await database.query('SELECT 1 FROM outbox.workers')).toEqual([]);
    } finally {
      await database.drop();
      rmSync(folder, { recursive: true, force: true });
    }
  });

  describe('shows how it is used', () => {
    it('with every command, every option and the exit codes', async () => {
      const [help, retry, version] = await Promise.all([cli(['--help']), cli(['retry', '--help']), cli(['--version'])]);
      expect(help).toMatchObject({ code: 0, err: '' });
      for (const name of ['why', 'status', 'list', 'show', 'dead-letters', 'jobs', 'health', 'retry', 'discard'])
        expect(help.out).toMatch(new RegExp(`^ {2}${name} `, 'm'));
      for (const name of ['cancel', 'send', 'pause', 'resume', 'retire', 'run-job', 'migrate', 'check'])
        expect(help.out).toMatch(new RegExp(`^ {2}${name} `, 'm'));
      expect(help.out).toMatch(/^ {2}3 {2}no database/m);
      expect(retry).toMatchObject({ code: 0, out: expect.stringMatching(/--dry-run.*--by.*--json.*Exit codes/s) });
      expect(version).toMatchObject({ code: 0, out: expect.stringMatching(/^\d+\.\d+\.\d+\n$/) });
    });

    it.each([
      [['statsu'], /unknown command 'statsu'\n\(Did you mean status\?\)/],
      [['status', '--jsn'], /unknown option '--jsn'/],
      [['show'], /missing required argument 'id'/],
      [['status', '--type', 'billing.'], /which is neither a type nor a pattern/],
      [['migrate', '--sql', '--from', '99'], /--from 99 is beyond version \d+, where it is to end/],
      [['list', '--state', 'retriable'], /none of pending, .* — did you mean 'retryable'\?/],
      [['retry', '--durable', '#relay'], /no terminal to ask on: look with --dry-run, then give --yes/],
    ])('when it is used wrongly: %j', async (args, said) => {
      failed(await run(...args), 2, said);
    });

    it('in JSON too, where JSON was asked for', async () => {
      const { code, json } = await run('show', '42', '--json');
      expect(code).toBe(2);
      expect(json()).toEqual({ error: { exitCode: 2, message: expect.stringContaining('no event id') } });
    });
  });

  describe('without a database it can use', () => {
    it('says that none was named', async () => {
      failed(await cli(['status'], { cwd: folder }), 3, /^no database was named: set DATABASE_URL/);
    });

    it('says that none answers there, or has that name, and shows no password', async () => {
      const elsewhere = new URL(database.url);
      elsewhere.pathname = '/nowhere_at_all';
      const [gone, other] = await Promise.all([
        cli(['status', '--url', 'postgres://ana:secret@127.0.0.1:1/shop'], { cwd: folder }),
        cli(['status', '--json'], { url: elsewhere.href, cwd: folder }),
      ]);
      failed(gone, 3, /^no database at ana@127\.0\.0\.1:1\/shop: .*ECONNREFUSED/);
      expect(gone.err).not.toContain('secret');
      failed(other, 3, /database "nowhere_at_all" does not exist/);
      expect(other.json()).toMatchObject({ error: { exitCode: 3 } });
    });

    it('says that it has no outbox, or one that is too old, and how to get it', async () => {
      const empty = await createDatabase();
      try {
        const look = (...args: string[]) => cli(args, { url: empty.url, cwd: folder });
        failed(await look('status'), 4, /has no outbox schema 'outbox'.*nestjs-outbox migrate/);
        expect(await look('migrate', '--to', '3')).toMatchObject({ code: 0 });
        failed(await look('status'), 4, /is at version 3, and this command line needs \d+: npx nestjs-outbox migrate/);
        failed(await look('status', '--schema', 'jobs'), 4, /has no outbox schema 'jobs'/);
        await empty.query('UPDATE outbox.schema_version SET version = 99, min_library = 99');
        failed(await look('status'), 4, /too new/);
      } finally {
        await empty.drop();
      }
    });
  });

  it('finds its database in a config file or in package.json, and is told what is wrong there', async () => {
    const app = mkdtempSync(join(folder, 'app-'));
    writeFileSync(join(app, 'nestjs-outbox.config.mjs'), `export default { url: ${JSON.stringify(database.url)} };\n`);
    expect(await cli(['health', '--json'], { cwd: app })).toMatchObject({ code: 0 });
    writeFileSync(join(app, 'package.json'), JSON.stringify({ 'nestjs-outbox': { databse: 'x' } }));
    failed(await cli(['health'], { cwd: app }), 2, /package\.json knows no 'databse'/);
  });

  describe('migrate', () => {
    it('prints what it would do as SQL, which does the same by hand', async () => {
      const empty = await createDatabase();
      try {
        const printed = await cli(['migrate', '--sql', '--schema', 'jobs', '--to', '3'], { cwd: folder });
        expect(printed).toMatchObject({ code: 0, err: '' });
        await empty.query(printed.out);
        const rest = await cli(['migrate', '--sql', '--schema', 'jobs'], { url: empty.url, cwd: folder });
        expect(rest.out).toMatch(/^-- nestjs-outbox: schema 'jobs' from version 3 to \d+\nBEGIN;/);
        await empty.query(rest.out);
        const check = await cli(['check', '--schema', 'jobs'], { url: empty.url, cwd: folder });
        expect(check).toMatchObject({ code: 0, out: expect.stringContaining('database: in order') });
        const again = await cli(['migrate', '--sql', '--schema', 'jobs'], { url: empty.url, cwd: folder });
        expect(again.out).toContain('nothing to do');
      } finally {
        await empty.drop();
      }
    });

    it('prints the grants of roles, whatever they are called', async () => {
      const { out, json } = await cli(['migrate', '--sql', '--json', '--worker', 'shop "w"', '--retrier', 'ops']);
      expect(out).toContain('TO \\"shop \\"\\"w\\"\\"\\"');
      const { statements } = json<{ statements: string[] }>();
      expect(statements).toEqual(expect.arrayContaining(outboxSchema.grants({ retrier: 'ops' })));
    });
  });

  describe('health', () => {
    it('of an outbox in order is green and ends with 0', async () => {
      const [text, data] = await Promise.all([run('health'), run('health', '--json')]);
      expect(text).toMatchObject({ code: 0, err: '', out: expect.stringMatching(/^GREEN\n/) });
      expect(data.json()).toMatchObject({ status: 'green', problems: [], worker: null, relay: { waiting: 0 } });
    });

    it('ends with 1 when it is red, and when it is yellow only with --strict', async () => {
      const queue = (ago: string) =>
        database.query('INSERT INTO outbox.queue (event_id, due_at) VALUES (gen_random_uuid(), now() - $1::interval)', [
          ago,
        ]);
      await queue('1 minute');
      const [yellow, strict] = await Promise.all([run('health'), run('health', '--strict')]);
      expect(yellow).toMatchObject({ code: 0, out: expect.stringMatching(/^YELLOW\n\nYELLOW relay: /) });
      expect(strict.code).toBe(1);
      await queue('1 hour');
      expect(await run('health')).toMatchObject({ code: 1, out: expect.stringMatching(/^RED\n\nRED relay: /) });
    });
  });

  describe('check', () => {
    it('finds in a module what the boot gate would, with and without a database, and ends though the module does not', async () => {
      const [good, bad, alone] = await Promise.all([
        run('check', modules, '--json'),
        run('check', `${modules}#MisspeltModule`),
        cli(['check', `${modules}#MisspeltModule`, '--json', '--no-database'], { cwd: folder }),
      ]);
      expect(good.json()).toMatchObject({ problems: [], checked: ['app', 'database'] });
      expect(good.code).toBe(0);
      expect(bad).toMatchObject({ code: 1, out: expect.stringContaining("'billing.invoice.payed'") });
      expect(alone.json()).toMatchObject({ checked: ['app'], problems: [{ message: expect.any(String) }] });
      expect(alone.code).toBe(1);
      // Nothing was registered: that is for a worker that boots.
      expect(await database.query('SELECT 1 FROM outbox.durables')).toEqual([]);
    });

    it('changes nothing, whatever the module would do at its start', async () => {
      const empty = await createDatabase();
      try {
        const check = await cli(['check', `${modules}#MigratingModule`], { url: empty.url, cwd: folder });
        expect(check).toMatchObject({
          code: 4,
          out: expect.stringContaining("the database has no outbox schema 'outbox'"),
        });
        expect(await empty.query("SELECT 1 FROM pg_namespace WHERE nspname = 'outbox'")).toEqual([]);
      } finally {
        await empty.drop();
      }
    });

    it('says what is wrong with the path to a module', async () => {
      const look = (path: string) => cli(['check', path], { cwd: folder });
      const [missing, source, other] = await Promise.all([
        look('dist/nowhere.js'),
        look('src/app.module.ts'),
        look(`${modules}#ApModule`),
      ]);
      failed(missing, 2, /dist\/nowhere\.js cannot be loaded: Cannot find module/);
      failed(source, 2, /is TypeScript: build it/);
      failed(other, 2, /exports no ApModule: .*#Name \(it exports AppModule, /);
    });
  });

  it('lists dead letters page by page, for people and for scripts', async () => {
    await database.query(`INSERT INTO outbox.durables (name, state) VALUES ('ledger', 'active')`);
    await database.query(`INSERT INTO outbox.dead_letters (event_id, durable, type, payload, error, attempts, created_at, dead_at)
      SELECT gen_random_uuid(), 'ledger', 'billing.invoice.paid', '{}', E'\\x1b[2JTypeError: no\\n    at post', 10, now(), now() FROM generate_series(1, 3)`);
    const [text, first] = await Promise.all([run('dead-letters'), run('dead-letters', '--json', '--limit', '2')]);
    expect(text).toMatchObject({
      code: 0,
      out: expect.stringMatching(/ledger +billing\.invoice\.paid .*TypeError: no$/m),
    });
    expect(text.out).not.toContain('\u001b');
    const page = first.json<{ letters: object[]; next: string }>();
    expect(page.letters).toHaveLength(2);
    const rest = await run('dead-letters', '--json', '--limit', '2', '--cursor', page.next);
    expect(rest.json()).toMatchObject({ letters: [{ durable: 'ledger', attempts: 10 }], next: null });
  });

  it('knows the durables, and the nearest to one that there is not', async () => {
    await database.query(
      `INSERT INTO outbox.durables (name, state, formerly) VALUES ('ledger', 'active', '{accounting}'), ('mail', 'active', '{}')`,
    );
    const [near, renamed, far] = await Promise.all([
      run('pause', 'ledgr'),
      run('dead-letters', '--durable', 'accounting'),
      run('retire', 'warehouse', '--yes'),
    ]);
    failed(near, 1, /^there is no durable 'ledgr' — did you mean 'ledger'\?/);
    failed(renamed, 1, /^durable 'accounting' is called 'ledger' now/);
    failed(far, 1, /^there is no durable 'warehouse': there are ledger, mail/);
  });

  it('retires a durable that has no code any more, and asks before', async () => {
    await database.query(`INSERT INTO outbox.durables (name, state, seen_at) VALUES ('ledger', 'active', now() - interval '1 hour'),
      ('mail', 'active', now())`);
    failed(await run('retire', 'ledger'), 2, /drop the 0 deliveries .* no terminal to ask on: give --yes/);
    expect(await run('retire', 'ledger', '--yes')).toMatchObject({ code: 0, out: "retired 'ledger'; dropped 0\n" });
    failed(await run('retire', 'mail', '--yes'), 1, /was handled by a worker within the last two minutes/);
    const states = await database.query('SELECT name, state FROM outbox.durables ORDER BY name');
    expect(states).toEqual([
      { name: 'ledger', state: 'retired' },
      { name: 'mail', state: 'active' },
    ]);
  });

  it('without nest-commander says how to get it, and nothing else', async () => {
    const app = mkdtempSync(join(folder, 'bare-'));
    const installed = join(app, 'node_modules/nestjs-outbox');
    mkdirSync(join(app, 'node_modules/@nestjs'), { recursive: true });
    for (const part of ['package.json', 'dist'])
      cpSync(join(process.cwd(), 'libs/outbox', part), join(installed, part), { recursive: true });
    const root = join(process.cwd(), 'node_modules');
    for (const name of readdirSync(root).filter((name) => !/^(nest-commander|nestjs-outbox|@nestjs|\..*)$/.test(name)))
      symlinkSync(join(root, name), join(app, 'node_modules', name));
    for (const name of readdirSync(join(root, '@nestjs')))
      symlinkSync(join(root, '@nestjs', name), join(app, 'node_modules/@nestjs', name));
    const bare = await cli(['status'], { url: database.url, main: join(installed, 'dist/cli/main.js') });
    failed(bare, 6, /npm install --save-dev nest-commander\n$/);
    symlinkSync(join(root, 'nest-commander'), join(app, 'node_modules/nest-commander'));
    const again = await cli(['health'], { url: database.url, main: join(installed, 'dist/cli/main.js') });
    expect(again).toMatchObject({ code: 0 });
  });
});

describeWithRoles('the command line as a role that owns nothing', () => {
  let database: TestDatabase;
  const roles: TestRole[] = [];
  const as = async (actor: 'operator' | 'publisher' | undefined, ...args: string[]): Promise<CliRun> => {
    const role = await createRole('cli');
    roles.push(role);
    if (actor)
      expect(await cli(['migrate', `--${actor}`, role.name], { url: database.url })).toMatchObject({ code: 0 });
    return cli(args, { url: role.urlOf(database) });
  };

  beforeAll(async () => {
    database = await createDatabase();
    await cli(['migrate'], { url: database.url });
  });
  afterAll(async () => {
    await database.drop();
    for (const role of roles) await role.drop();
  });

  it('reads with the grants of an operator, that migrate gives', async () => {
    expect(await as('operator', 'health')).toMatchObject({ code: 0, out: expect.stringMatching(/^GREEN/) });
  });

  it('is told what it lacks, and never that what it cannot see is green', async () => {
    failed(
      await as(undefined, 'health'),
      5,
      /may not read the outbox schema 'outbox': npx nestjs-outbox migrate --operator/,
    );
    failed(await as('publisher', 'health'), 5, /may not read relay, deliveries, dead letters, jobs/);
  });

  it('with a wrong password does not come in', async () => {
    const url = new URL(database.url);
    url.password = 'wrong-and-secret';
    const run = await cli(['status'], { url: url.href });
    failed(run, 3, /password authentication failed/);
    expect(run.err).not.toContain('wrong-and-secret');
  });
});
