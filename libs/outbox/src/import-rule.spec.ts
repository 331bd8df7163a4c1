import { spawnSync } from 'node:child_process';
import { cpSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const root = process.cwd();

/** Runs the import rule over a copy of the library with some more files in it; returns its exit code and what it said. */
function cruise(files: readonly (readonly [string, string])[]): { code: number | null; said: string } {
  const copy = mkdtempSync(join(tmpdir(), 'outbox-imports-'));
  try {
    for (const part of [
      'libs',
      'src',
      'soak',
      'bench',
      'test',
      'tsconfig.base.json',
      'package.json',
      '.dependency-cruiser.cjs',
    ]) {
      const filter = (path: string): boolean => !/node_modules|[\\/]dist([\\/]|$)/.test(path);
      cpSync(join(root, part), join(copy, part), { recursive: true, filter });
    }
    symlinkSync(join(root, 'node_modules'), join(copy, 'node_modules'));
    for (const [file, text] of files) writeFileSync(join(copy, file), text);
    const cruiser = join(root, 'node_modules/dependency-cruiser/bin/dependency-cruise.mjs');
    const args = [cruiser, '--config', '.dependency-cruiser.cjs', 'libs/outbox/src', 'src', 'test', 'bench', 'soak'];
    const run = spawnSync(process.execPath, args, { cwd: copy, encoding: 'utf8', timeout: 120_000 });
    return { code: run.status, said: run.stdout + run.stderr };
  } finally {
    rmSync(copy, { recursive: true, force: true });
  }
}

/** One broken arrow for each rule: the rule's name, the file, what it must not import. */
const broken: readonly (readonly [string, string, string])[] = [
  ['core-is-a-leaf', 'libs/outbox/src/core/broken.ts', '../tables/events.table.js'],
  ['tables-on-core', 'libs/outbox/src/tables/broken.ts', '../transactions/runner-queue.js'],
  ['transactions-on-core-and-tables', 'libs/outbox/src/transactions/broken.ts', '../events/event-type.js'],
  ['transports-on-core', 'libs/outbox/src/transports/postgres/broken.ts', '../../relay/relay-pass.js'],
  ['features-not-sideways', 'libs/outbox/src/relay/broken.ts', '../recover/sweep.service.js'],
  ['events-only-for-consume', 'libs/outbox/src/recover/broken.ts', '../events/event-type.js'],
  ['consume-only-for-recover', 'libs/outbox/src/relay/broken-too.ts', '../consume/lane.js'],
  ['nobody-imports-the-index', 'libs/outbox/src/relay/broken-index.ts', '../index.js'],
  ['module-is-the-root', 'libs/outbox/src/consume/broken.ts', '../outbox.module.js'],
  ['nats-behind-its-transport', 'libs/outbox/src/relay/broken-nats.ts', 'nats'],
  ...['src', 'test', 'soak', 'bench'].map(
    (part) => ['nats-behind-its-transport', `${part}/broken-nats.ts`, 'nats'] as const,
  ),
  ['cli-is-a-composition', 'libs/outbox/src/cli/broken.ts', '../relay/relay-pass.js'],
  ['nobody-imports-the-cli', 'libs/outbox/src/inspect/broken-cli.ts', '../cli/terminal.js'],
  ['nobody-imports-the-cli', 'test/broken-cli.ts', '../libs/outbox/src/cli/terminal.js'],
  ['commander-behind-the-cli', 'libs/outbox/src/inspect/broken-commander.ts', 'nest-commander'],
  ['doors-only', 'src/broken.ts', '../libs/outbox/src/core/backoff.js'],
  ['doors-only', 'soak/broken.ts', '../libs/outbox/src/core/backoff.js'],
  ['no-circular', 'libs/outbox/src/core/circle.ts', './circle.js'],
];

describe('the import rule', () => {
  it('holds', () => {
    expect(cruise([])).toEqual({ code: 0, said: expect.stringContaining('no dependency violations') });
  }, 60_000);

  it('fails on every broken arrow', () => {
    const { code, said } = cruise(broken.map(([, file, target]) => [file, `import '${target}';\n`]));
    expect(code).toBeGreaterThan(0);
    for (const [name, file] of broken) expect(said).toContain(`error ${name}: ${file}`);
  }, 60_000);
});
