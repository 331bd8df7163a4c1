import { chmod, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { findNats } from './find.js';

describe('which nats-server is found', () => {
  const before = { ...process.env };
  let folder: string;
  let binary: string;

  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'outbox-find-'));
    binary = join(folder, 'nats-server');
    await writeFile(binary, '#!/bin/sh\n');
    await chmod(binary, 0o755);
    delete process.env['NATS_SERVER_BIN'];
  });

  afterEach(async () => {
    Object.assign(process.env, before);
    await rm(folder, { recursive: true });
  });

  it('is the one on the PATH, by its order', () => {
    process.env['PATH'] = `/nowhere:${folder}:${before['PATH']}`;
    expect(findNats()).toBe(binary);
  });

  it('is the one that NATS_SERVER_BIN names before any on the PATH', () => {
    process.env['PATH'] = '/nowhere';
    process.env['NATS_SERVER_BIN'] = binary;
    expect(findNats()).toBe(binary);
  });

  it('is none when the named one is not there, or cannot be run', async () => {
    process.env['PATH'] = folder;
    process.env['NATS_SERVER_BIN'] = '/nowhere/nats-server';
    expect(findNats()).toBeUndefined();
    await chmod(binary, 0o644);
    process.env['NATS_SERVER_BIN'] = binary;
    expect(findNats()).toBeUndefined();
  });
});
