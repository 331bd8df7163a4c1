import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { nkeyAuthenticator, nkeys } from 'nats';
import { OutboxBootError } from 'nestjs-outbox';
import { startNats, type ThrowawayNats, type ThrowawayNatsOptions } from 'throwaway-nats';
import { eventually } from '../../../../../test/support/eventually.js';
import { describeWithOwnNats } from '../../../../../test/support/nats.js';
import { effect, type Run, subscriber, useStage } from '../../../../../test/support/stage.js';
import type { JetstreamOptions } from './jetstream.options.js';
import { jetstream } from './jetstream.transport.js';

const type = 'billing.invoice.paid';

describeWithOwnNats('a way to the broker', () => {
  const stage = useStage();
  const servers: ThrowawayNats[] = [];
  const folder = mkdtempSync(join(tmpdir(), 'outbox-tls-'));
  const file = (name: string) => join(folder, name);

  beforeAll(() => {
    const openssl = (...args: string[]) =>
      execFileSync('openssl', args, { cwd: folder, stdio: 'ignore', timeout: 60_000 });
    const subject = (name: string) => ['-subj', `/CN=${name}`];
    const [key, days] = [
      ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes'],
      ['-days', '2'],
    ];
    openssl('req', '-x509', ...key, ...days, '-keyout', 'ca.key', '-out', 'ca.pem', ...subject('a test authority'));
    for (const name of ['server', 'client']) {
      const usage = ['-addext', 'subjectAltName=IP:127.0.0.1,DNS:localhost'];
      openssl('req', ...key, '-keyout', `${name}.key`, '-out', `${name}.csr`, ...subject(name), ...usage);
      const by = ['-CA', 'ca.pem', '-CAkey', 'ca.key', '-CAcreateserial', '-copy_extensions', 'copy'];
      openssl('x509', '-req', '-in', `${name}.csr`, ...by, ...days, '-out', `${name}.pem`);
    }
  });
  afterEach(async () => {
    for (const server of servers.splice(0)) await server.stop();
  });
  afterAll(() => rmSync(folder, { recursive: true, force: true }));

  async function start(options: ThrowawayNatsOptions): Promise<string> {
    const server = await startNats(options);
    servers.push(server);
    return server.url;
  }

  const boot = (options: JetstreamOptions) =>
    stage.boot({
      manifest: { emits: [type] },
      providers: [subscriber(type, 'way', effect as Run<never>)],
      outbox: {
        transport: jetstream(options),
        schema: { onStart: 'migrate' },
        relay: { poll: '50ms', reconcile: '20d' },
      },
    });

  /** An event goes there and comes back. */
  async function carries(options: JetstreamOptions) {
    const app = await boot(options);
    const { id } = await app.publisher.publishNow(type, {});
    await eventually('it has run', () =>
      stage.database.value('SELECT EXISTS (SELECT 1 FROM effects WHERE event_id = $1)', [id]),
    );
    await app.close();
    return app.log;
  }

  async function refused(options: JetstreamOptions): Promise<string> {
    const error = await boot(options).then(
      () => undefined,
      (reason: unknown) => reason,
    );
    expect(error).toBeInstanceOf(OutboxBootError);
    const { message, problems } = error as OutboxBootError;
    expect(problems.map(({ check }) => check)).toEqual(['broker']);
    return message;
  }

  const tls = (more = '') =>
    `tls { cert_file: ${JSON.stringify(file('server.pem'))}, key_file: ${JSON.stringify(file('server.key'))} ${more} }`;

  it('by user and password', async () => {
    const url = await start({ config: 'authorization { user: ann, password: s3cret }' });
    const log = await carries({ servers: url, user: 'ann', pass: 's3cret' });
    expect(log.lines.join('\n')).not.toContain('s3cret');
  });

  it('by token', async () => {
    await carries({ servers: await start({ config: 'authorization { token: t0ken }' }), token: 't0ken' });
  });

  it('by nkey', async () => {
    const pair = nkeys.createUser();
    const url = await start({ config: `authorization { users: [ { nkey: ${pair.getPublicKey()} } ] }` });
    await carries({ servers: url, authenticator: nkeyAuthenticator(pair.getSeed()) });
  });

  it('by TLS, with an authority of its own', async () => {
    await carries({ servers: await start({ config: tls() }), tls: { caFile: file('ca.pem') } });
  });

  it('by TLS, with a certificate of the client as well', async () => {
    const url = await start({ config: tls(`, ca_file: ${JSON.stringify(file('ca.pem'))}, verify: true`) });
    const client = {
      ca: readFileSync(file('ca.pem'), 'utf8'),
      certFile: file('client.pem'),
      keyFile: file('client.key'),
    };
    await carries({ servers: url, tls: client });
  });

  it('to a domain of JetStream, by its name or by the prefix of its API', async () => {
    const url = await start({ jetstream: 'domain: hub' });
    await carries({ servers: url, domain: 'hub', stream: 'one', prefix: 'one' });
    await carries({ servers: url, apiPrefix: '$JS.hub.API', stream: 'one', prefix: 'one' });
  });

  it.each<[string, JetstreamOptions, RegExp]>([
    ['with a wrong password', { user: 'ann', pass: 'wr0ng' }, /\(given: user, pass\): .*Authorization Violation/i],
    ['of a stranger', { user: 'bob', pass: 'wr0ng' }, /\(given: user, pass\)/],
    ['with a token it does not take', { token: 'wr0ng' }, /\(given: token\)/],
    ['without a word', {}, /\(none was given\)/],
    [
      'with a key it does not know',
      { authenticator: nkeyAuthenticator(nkeys.createUser().getSeed()) },
      /authenticator/,
    ],
  ])(
    'that is refused %s keeps the process from booting, and says so without the secret',
    async (_what, login, says) => {
      const url = await start({ config: 'authorization { user: ann, password: s3cret }' });
      const message = await refused({ servers: url, ...login });
      expect(message).toMatch(
        /^nestjs-outbox does not start: 1 problem\.\n {2}- nats-server at nats:\/\/127\.0\.0\.1:\d+ refuses the login/,
      );
      expect(message).toMatch(says);
      expect(message).not.toMatch(/wr0ng|s3cret/);
    },
  );

  it.each<[string, () => JetstreamOptions, RegExp]>([
    ['of an authority that is not known', () => ({}), /certificate/],
    ['that cannot be read', () => ({ tls: { caFile: file('absent.pem') } }), /absent\.pem doesn't exist/],
  ])('by a certificate %s keeps the process from booting', async (_what, options, says) => {
    const message = await refused({ servers: await start({ config: tls() }), ...options() });
    expect(message).toMatch(says);
  });
});
