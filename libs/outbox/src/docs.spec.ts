import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import * as outbox from './index.js';

const page = readFileSync(join(process.cwd(), 'docs/guide/errors.md'), 'utf8');
const sources = readdirSync(join(__dirname), { recursive: true, encoding: 'utf8' })
  .filter((file) => file.endsWith('.ts') && !file.endsWith('.spec.ts'))
  .map((file) => readFileSync(join(__dirname, file), 'utf8'));

/** The rows of the tables: code and class. */
const documented = [...page.matchAll(/^\| `(OUTBOX_[A-Z_]+)` +\| `(\w+)` +\|/gm)].map(([, code, name]) => ({
  code,
  name,
}));

describe('the page about errors', () => {
  it('has a row for every public error class, and no other', () => {
    const classes = Object.entries(outbox)
      .filter(
        ([name, value]) => typeof value === 'function' && value.prototype instanceof Error && name !== 'OutboxError',
      )
      .map(([name]) => name);
    expect(documented.map(({ name }) => name).sort()).toEqual(classes.sort());
  });

  it('gives each class its own code', () => {
    const declared = sources.flatMap((text) =>
      [...text.matchAll(/class (\w+) extends OutboxError \{\s+(?:override )?readonly code = '(OUTBOX_[A-Z_]+)'/g)].map(
        ([, name, code]) => ({ code, name }),
      ),
    );
    expect(declared.length).toBeGreaterThan(10);
    const byCode = (a: { code?: string }, b: { code?: string }) => String(a.code).localeCompare(String(b.code));
    expect([...documented].sort(byCode)).toEqual(declared.sort(byCode));
  });

  it('names every check of the boot gate that can refuse', () => {
    const checks = new Set(
      sources.flatMap((text) => [...text.matchAll(/\bcheck: '([\w-]+)'/g)].map(([, name]) => name)),
    );
    for (const text of sources)
      for (const [, name] of text.matchAll(/registry\.problem\(\s*'([\w-]+)'|\bthis\.problem\(\s*'([\w-]+)'/g))
        if (name) checks.add(name);
    // Only checkOutbox reports it; it is no part of a boot.
    checks.delete('graph');
    const rows = [...page.matchAll(/^\| `([a-zA-Z-]+)` +\| /gm)].map(([, name]) => name);
    expect([...checks].filter((name) => !rows.includes(name))).toEqual([]);
  });
});
