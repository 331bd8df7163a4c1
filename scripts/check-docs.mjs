// Compiles every ```ts snippet of the README and the guide against the built package, so that none of them lies.
// Names that a snippet uses without declaring them come from docs/snippets.d.ts.
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';

const folder = 'dist/snippets';
const pages = [
  'README.md',
  'CHANGELOG.md',
  'CONTRIBUTING.md',
  'DEVELOPERS.md',
  ...readdirSync('docs', { recursive: true }).map((f) => join('docs', f)),
].filter((f) => f.endsWith('.md'));

rmSync(folder, { recursive: true, force: true });
mkdirSync(folder, { recursive: true });
let count = 0;
const dead = [];
for (const page of pages) {
  const text = readFileSync(page, 'utf8');
  for (const [, target] of text.matchAll(/\]\(([^)#\s]+)[^)]*\)/g))
    if (!/^[a-z]+:/.test(target) && !existsSync(join(dirname(page), target))) dead.push(`${page}: ${target}`);
  for (const match of text.matchAll(/^```ts\n(.*?)^```/gms)) {
    const line = text.slice(0, match.index).split('\n').length + 1;
    const name = `${page.replaceAll(/[^a-z0-9]+/gi, '-')}-line-${line}.ts`;
    writeFileSync(join(folder, name), `/// <reference path="../../docs/snippets.d.ts" />\n${match[1]}\nexport {};\n`);
    count += 1;
  }
}
writeFileSync(
  join(folder, 'tsconfig.json'),
  JSON.stringify({
    extends: '../../tsconfig.base.json',
    compilerOptions: {
      noEmit: true,
      composite: false,
      declaration: false,
      noUnusedLocals: false,
      noUnusedParameters: false,
      rootDir: '../..',
    },
    include: ['*.ts'],
  }),
);
const compiled = spawnSync(process.execPath, ['node_modules/typescript/bin/tsc', '-p', folder], { stdio: 'inherit' });
console.log(
  compiled.status === 0
    ? `${count} snippets compile`
    : 'a snippet does not compile; its name says the page and the line',
);
for (const link of dead) console.log(`a link leads nowhere: ${link}`);
process.exit(dead.length > 0 ? 1 : (compiled.status ?? 1));
