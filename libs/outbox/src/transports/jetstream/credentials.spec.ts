import { credsAuthenticator, nkeys } from 'nats';
import { startNats } from 'throwaway-nats';
import { eventually } from '../../../../../test/support/eventually.js';
import { describeWithOwnNats } from '../../../../../test/support/nats.js';
import { effect, type Run, subscriber, useStage } from '../../../../../test/support/stage.js';
import { jetstream } from './jetstream.transport.js';

const type = 'billing.invoice.paid';
type KeyPair = ReturnType<typeof nkeys.createUser>;

/** A claim as the servers read it, signed by `by`. */
function token(by: KeyPair, of: KeyPair, nats: object): string {
  const part = (value: object) => Buffer.from(JSON.stringify(value)).toString('base64url');
  const claim = { jti: 'x', iat: 1_700_000_000, iss: by.getPublicKey(), sub: of.getPublicKey(), name: 'x' };
  const body = `${part({ typ: 'JWT', alg: 'ed25519-nkey' })}.${part({ ...claim, nats: { version: 2, ...nats } })}`;
  return `${body}.${Buffer.from(by.sign(new TextEncoder().encode(body))).toString('base64url')}`;
}

/** What an operator hands out: one account with JetStream, and a user of it. */
function accounts() {
  const [operator, account, user] = [nkeys.createOperator(), nkeys.createAccount(), nkeys.createUser()];
  const system = nkeys.createAccount();
  const open = { subs: -1, data: -1, payload: -1, imports: -1, exports: -1, wildcards: true, conn: -1, leaf: -1 };
  const storage = { mem_storage: -1, disk_storage: -1, streams: -1, consumer: -1 };
  const claims = {
    [account.getPublicKey()]: token(operator, account, { type: 'account', limits: { ...open, ...storage } }),
    [system.getPublicKey()]: token(operator, system, { type: 'account', limits: open }),
  };
  const preload = Object.entries(claims).map(([key, jwt]) => `${key}: ${jwt}`);
  const jwt = token(account, user, { type: 'user', pub: {}, sub: {}, subs: -1, data: -1, payload: -1 });
  const seed = new TextDecoder().decode(user.getSeed());
  return {
    config: `operator: ${token(operator, operator, { type: 'operator' })}
      system_account: ${system.getPublicKey()}
      resolver: MEMORY
      resolver_preload: {\n${preload.join('\n')}\n}`,
    creds: [
      `-----BEGIN NATS USER JWT-----\n${jwt}\n------END NATS USER JWT------`,
      `-----BEGIN USER NKEY SEED-----\n${seed}\n------END USER NKEY SEED------\n`,
    ].join('\n\n'),
    seed,
  };
}

describeWithOwnNats('a way to the broker by a file of credentials', () => {
  const stage = useStage();

  const boot = (servers: string, creds: string) =>
    stage.boot({
      manifest: { emits: [type] },
      providers: [subscriber(type, 'creds', effect as Run<never>)],
      outbox: {
        transport: jetstream({ servers, authenticator: credsAuthenticator(new TextEncoder().encode(creds)) }),
        schema: { onStart: 'migrate' },
        relay: { poll: '50ms', reconcile: '20d' },
      },
    });

  it('is taken; the credentials of another operator keep the process from booting, and are not repeated', async () => {
    const [ours, theirs] = [accounts(), accounts()];
    const server = await startNats({ config: ours.config });
    try {
      const error = await boot(server.url, theirs.creds).then(
        () => undefined,
        (reason: unknown) => reason,
      );
      expect(error).toMatchObject({
        name: 'OutboxBootError',
        message: expect.stringContaining('given: authenticator'),
      });
      expect(String(error)).not.toContain(theirs.seed);
      const app = await boot(server.url, ours.creds);
      const { id } = await app.publisher.publishNow(type, {});
      await eventually('it has run', () =>
        stage.database.value('SELECT EXISTS (SELECT 1 FROM effects WHERE event_id = $1)', [id]),
      );
      await app.close();
    } finally {
      await server.stop();
    }
  });
});
