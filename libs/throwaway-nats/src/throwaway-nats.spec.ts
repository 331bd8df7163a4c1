import { fork } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readdirSync } from 'node:fs';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { dirname } from 'node:path';
import { eventually } from '../../../test/support/eventually.js';
import { describeWithOwnNats } from '../../../test/support/nats.js';
import { readInfo } from './info.js';
import { startNats, type ThrowawayNats, type ThrowawayNatsOptions } from './server.js';

const servers: ThrowawayNats[] = [];

async function start(options?: ThrowawayNatsOptions): Promise<ThrowawayNats> {
  const server = await startNats(options);
  servers.push(server);
  return server;
}

/** One request in NATS's text protocol, and what comes back for it. */
async function ask({ url }: ThrowawayNats, subject: string, body: unknown = ''): Promise<Record<string, unknown>> {
  const text = body === '' ? '' : JSON.stringify(body);
  const socket = connect(Number(new URL(url).port), '127.0.0.1').setEncoding('utf8');
  socket.write(`CONNECT {"verbose":false}\r\nSUB answer 1\r\nPUB ${subject} answer ${text.length}\r\n${text}\r\n`);
  let seen = '';
  try {
    for await (const data of socket) {
      seen += data;
      const message = /\r\nMSG answer 1 +\d+\r\n(.*)\r\n/.exec(seen)?.[1];
      if (message) return JSON.parse(message);
      if (/-ERR|^HMSG/m.test(seen)) throw new Error(seen);
    }
    throw new Error(`the connection ended: ${seen}`);
  } finally {
    socket.destroy();
  }
}

const createStream = (server: ThrowawayNats) =>
  ask(server, '$JS.API.STREAM.CREATE.kept', {
    name: 'kept',
    subjects: ['kept.*'],
    storage: 'file',
    retention: 'limits',
  });

async function lastMessage(server: ThrowawayNats): Promise<string> {
  const { message } = await ask(server, '$JS.API.STREAM.MSG.GET.kept', { last_by_subj: 'kept.a' });
  return Buffer.from((message as { data: string }).data, 'base64').toString();
}

const refused = (error: Error) => error.message.includes('ECONNREFUSED');

describeWithOwnNats('a throw-away nats-server', () => {
  afterEach(async () => {
    for (const server of servers.splice(0)) await server.stop();
  });

  it('runs with JetStream on a port of its own, and says its version', async () => {
    const [one, other] = await Promise.all([start(), start()]);
    expect(one.url).not.toBe(other.url);
    expect(await readInfo(one.url)).toMatchObject({ version: one.version, jetstream: true });
    expect(one.version).toMatch(/^2\.\d+\.\d+/);
  });

  it.each(['stopServer', 'kill'] as const)('keeps its data over %s and start, at the same address', async (how) => {
    const server = await start();
    await createStream(server);
    await ask(server, 'kept.a', 'one');
    const before = { url: server.url, pid: server.pid };
    await server[how]();
    expect(server.pid).toBeUndefined();
    await expect(readInfo(server.url)).rejects.toThrow('ECONNREFUSED');
    await server.start();
    expect(server.url).toBe(before.url);
    expect(server.pid).not.toBe(before.pid);
    expect(await lastMessage(server)).toBe('"one"');
  });

  it('has nothing after a wipe, which wants it stopped', async () => {
    const server = await start();
    await createStream(server);
    await expect(server.wipe()).rejects.toThrow('stop it before');
    await server.kill();
    expect(readdirSync(server.storage)).not.toEqual([]);
    await server.wipe();
    expect(readdirSync(server.storage)).toEqual([]);
    await server.start();
    expect(await ask(server, '$JS.API.STREAM.INFO.kept')).toMatchObject({ error: { code: 404 } });
  });

  it('answers nothing while it is paused, and is stopped nevertheless', async () => {
    const server = await start();
    await server.pause();
    await expect(readInfo(server.url, 300)).rejects.toThrow('nothing came within 300 ms');
    server.unpause();
    expect(await readInfo(server.url)).toMatchObject({ jetstream: true });
    await server.pause();
    await server.stopServer();
    await server.start();
    await server.pause();
    await server.stop();
    expect(existsSync(dirname(server.storage))).toBe(false);
  });

  it('is configured by lines of its file, inside jetstream and outside', async () => {
    const server = await start({ config: 'max_payload: 4KB', jetstream: 'domain: hub\nmax_file_store: 10MB' });
    expect(await readInfo(server.url)).toMatchObject({ max_payload: 4096, domain: 'hub' });
    const without = await start({ jetstream: false });
    expect((await readInfo(without.url)).jetstream).toBeFalsy();
  });

  it('says its last words when it does not start, and leaves nothing', async () => {
    const failing = start({ config: 'no_such_setting: 1' }).catch(({ message }) => message);
    const message = String(await failing);
    expect(message).toMatch(/did not start: it ended with 1; its last words:\n.*no_such_setting/s);
    const folder = /\S+outbox-nats-\w+/.exec(message)?.[0] ?? '';
    expect(folder).toContain(tmpdir());
    expect(existsSync(folder)).toBe(false);
  });

  it('ends with a process that was killed, and its folder goes', async () => {
    const child = fork('dist/test/support/nats-main.js', { stdio: ['ignore', 2, 2, 'ipc'] });
    const [{ url, storage }] = await once(child, 'message');
    expect(existsSync(storage)).toBe(true);
    child.kill('SIGKILL');
    await eventually('nothing listens there', () => readInfo(url).then(() => false, refused));
    await eventually('its folder has gone', () => !existsSync(dirname(storage)));
  });
});
