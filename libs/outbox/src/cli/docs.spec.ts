import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { exit } from './exit-codes.js';

const page = readFileSync(join(process.cwd(), 'docs/guide/command-line.md'), 'utf8');

describe('the page about the command line', () => {
  it('has every exit code, and no other', () => {
    const codes = [...page.matchAll(/^\| (\d+) +\|/gm)].map(([, code]) => Number(code));
    expect(codes).toEqual(Object.values(exit));
  });

  it('has every command', () => {
    const names = readdirSync(join(__dirname, 'commands'))
      .filter((file) => file.endsWith('.command.ts'))
      .map((file) => file.replace('.command.ts', ''));
    expect(names.length).toBeGreaterThan(10);
    for (const name of names) expect(page).toMatch(new RegExp(`^\\| .*\`${name}\\b`, 'm'));
  });
});
