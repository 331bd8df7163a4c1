import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

const readme = readFileSync('README.md', 'utf8');
const tests = ['test/e2e', 'libs/outbox/src']
  .flatMap((folder) => readdirSync(folder, { recursive: true, encoding: 'utf8' }).map((file) => join(folder, file)))
  .filter((file) => file.endsWith('spec.ts'))
  .map((file) => readFileSync(file, 'utf8'))
  .join('\n');

/** What every `describe` of the tests begins with, plain or conditional. */
const describes = [...tests.matchAll(/^ *describe\w*\(\s*(?:'[^']*'|"[^"]*")/gm)].map((match) => match[0]);

/** The names in the second column of the table of promises. */
const names = [...readme.matchAll(/^\| .* \| +`"(.+)"` +\|$/gm)].map((match) => match[1] ?? '');

describe('the README', () => {
  it('prints a test for every promise', () => {
    expect(names.length).toBeGreaterThan(15);
  });

  it.each(names)('%s: is the name of tests', (name) => {
    const quoted = [`'${name}'`, `"${name}"`];
    expect(describes.some((start) => quoted.some((title) => start.endsWith(title)))).toBe(true);
  });
});
