import { spawnSync } from 'node:child_process';
import { cpSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const root = process.cwd();

/** Runs the import rule over a copy of the library with one more file in it; returns its exit code and what it said. */
function cruise(file: string, text: string): { code: number | null; said: string } {
  const copy = mkdtempSync(join(tmpdir(), 'outbox-imports-'));
  try {
    for (const part of ['libs', 'src', 'tsconfig.base.json', 'package.json', '.dependency-cruiser.cjs']) {
      cpSync(join(root, part), join(copy, part), {
        recursive: true,
        filter: (path) => !/node_modules|[\\/]dist([\\/]|$)/.test(path),
      });
    }
    symlinkSync(join(root, 'node_modules'), join(copy, 'node_modules'));
    writeFileSync(join(copy, file), text);
    const run = spawnSync(
      process.execPath,
      [
        join(root, 'node_modules/dependency-cruiser/bin/dependency-cruise.mjs'),
        '--config',
        '.dependency-cruiser.cjs',
        'libs/outbox/src',
        'src',
      ],
      { cwd: copy, encoding: 'utf8' },
    );
    return { code: run.status, said: run.stdout + run.stderr };
  } finally {
    rmSync(copy, { recursive: true, force: true });
  }
}

describe('the import rule', () => {
  it('holds', () => {
    expect(cruise('libs/outbox/src/core/fine.ts', 'export {};\n')).toEqual({
      code: 0,
      said: expect.stringContaining('no dependency violations'),
    });
  });

  it.each([
    ['core-is-a-leaf', 'libs/outbox/src/core/broken.ts', "import '../tables/events.table.js';\n"],
    ['tables-on-core', 'libs/outbox/src/tables/broken.ts', "import '../transactions/runner-queue.js';\n"],
    ['transports-on-core', 'libs/outbox/src/transports/postgres/broken.ts', "import '../../relay/relay-pass.js';\n"],
    ['features-not-sideways', 'libs/outbox/src/relay/broken.ts', "import '../recover/sweep.service.js';\n"],
    ['consume-only-for-recover', 'libs/outbox/src/relay/broken.ts', "import '../consume/lane.js';\n"],
    ['nobody-imports-the-index', 'libs/outbox/src/relay/broken.ts', "import '../index.js';\n"],
    ['doors-only', 'src/broken.ts', "import '../libs/outbox/src/core/backoff.js';\n"],
    ['no-circular', 'libs/outbox/src/core/broken.ts', "import './broken-too.js';\n"],
  ])(
    'fails on a broken arrow: %s',
    (name, file, text) => {
      if (name === 'no-circular') {
        expect(cruise(file, "import type { A } from './broken.js';\nexport type A = 1;\n").said).toContain(name);
        return;
      }
      const { code, said } = cruise(file, text);
      expect(said).toContain(name);
      expect(code).not.toBe(0);
    },
    60_000,
  );
});
