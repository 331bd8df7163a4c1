import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

const readme = readFileSync('README.md', 'utf8');
const tests = readdirSync('test/e2e', { recursive: true, encoding: 'utf8' })
  .filter((file) => file.endsWith('.e2e-spec.ts'))
  .map((file) => readFileSync(join('test/e2e', file), 'utf8'))
  .join('\n');

/** The names in the second column of the table of promises. */
const names = [...readme.matchAll(/^\| .* \| +`"(.+)"` +\|$/gm)].map((match) => match[1] ?? '');

describe('the README', () => {
  it('prints a test for every promise', () => {
    expect(names.length).toBeGreaterThan(15);
  });

  it.each(names)('%s: is the name of tests', (name) => {
    expect([`describe('${name}'`, `describe("${name}"`].some((start) => tests.includes(start))).toBe(true);
  });
});
