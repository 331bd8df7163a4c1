import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { targetOf, urlOf } from './config.js';

describe('which database the command line means', () => {
  let folder: string;
  const write = (file: string, content: unknown): void => writeFileSync(join(folder, file), JSON.stringify(content));
  const target = (options = {}, env = {}) => targetOf(options, env, folder);

  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), 'outbox-config-'));
  });
  afterEach(() => rmSync(folder, { recursive: true, force: true }));

  it('is said by --url before DATABASE_URL, and by that before the file', async () => {
    write('nestjs-outbox.config.json', { url: 'postgres://file/x', schema: 'jobs' });
    expect(await target()).toMatchObject({ url: 'postgres://file/x', schema: 'jobs' });
    expect(await target({}, { DATABASE_URL: 'postgres://env/x' })).toMatchObject({ url: 'postgres://env/x' });
    expect(await target({}, { DATABASE_URL: '' })).toMatchObject({ url: 'postgres://file/x' });
    const said = { url: 'postgres://said/x', schema: 'other' };
    expect(await target(said, { DATABASE_URL: 'postgres://env/x' })).toMatchObject(said);
  });

  it('may stand in package.json, and in a file above', async () => {
    write('package.json', {
      name: 'shop',
      'nestjs-outbox': { schema: 'jobs', module: 'dist/app.module.js#AppModule' },
    });
    mkdirSync(join(folder, 'src'));
    expect(await targetOf({}, {}, join(folder, 'src'))).toEqual({
      url: undefined,
      schema: 'jobs',
      module: join(folder, 'dist/app.module.js#AppModule'),
    });
  });

  it('may stand in a file that is named', async () => {
    write('ops.json', { url: 'postgres://ops/x' });
    expect(await target({ config: 'ops.json' })).toMatchObject({ url: 'postgres://ops/x' });
    await expect(target({ config: 'nowhere.json' })).rejects.toThrow(/the config file nowhere.json cannot be read/);
  });

  it('is refused with a key or a value that means nothing', async () => {
    write('nestjs-outbox.config.json', { ulr: 'postgres://x/y' });
    await expect(target()).rejects.toThrow(/knows no 'ulr' — did you mean 'url'\? It takes url, schema, module/);
    write('nestjs-outbox.config.json', { schema: 3 });
    await expect(target()).rejects.toThrow(/schema must be a string/);
    await expect(target({ config: 'nestjs-outbox.config.json', schema: 'A"b' })).rejects.toMatchObject({ exitCode: 2 });
  });

  it('has to be named, and to be Postgres', () => {
    const none = { url: undefined, schema: undefined, module: undefined };
    expect(() => urlOf(none)).toThrow(/no database was named: set DATABASE_URL/);
    expect(() => urlOf({ ...none, url: 'mysql://x/y' })).toThrow(/does not begin with postgres:/);
    expect(urlOf({ ...none, url: 'postgresql://x/y' })).toBe('postgresql://x/y');
  });
});
