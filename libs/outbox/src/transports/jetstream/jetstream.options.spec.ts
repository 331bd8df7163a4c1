import { OutboxBootError } from 'nestjs-outbox';
import { useStage } from '../../../../../test/support/stage.js';
import { type JetstreamOptions, resolve } from './jetstream.options.js';
import { jetstream } from './jetstream.transport.js';

/** Options as JavaScript, or a configuration file, may hand them over. */
const untyped = (options: unknown): JetstreamOptions => options as JetstreamOptions;
const problems = (options: unknown) => resolve(untyped(options)).problems;

describe('the options of jetstream()', () => {
  const stage = useStage();

  it('have defaults', () => {
    expect(resolve({})).toEqual({
      problems: [],
      settings: {
        connection: {},
        domain: undefined,
        apiPrefix: undefined,
        stream: 'outbox',
        prefix: 'outbox',
        maxAgeMs: 48 * 3_600_000,
        maxBytes: undefined,
        duplicateWindowMs: 15 * 60_000,
        replicas: 1,
        ackWaitMs: 30_000,
        source: undefined,
      },
    });
  });

  it('take what the nats package takes to find the servers and be known there', () => {
    const authenticator = () => ({});
    const given = {
      servers: ['a:4222', 'tls://b:4222'],
      user: 'u',
      pass: 'p',
      token: 't',
      authenticator,
      tls: {},
      inboxPrefix: '_I',
    };
    expect(resolve(untyped(given))).toMatchObject({ problems: [], settings: { connection: given } });
  });

  it.each<[unknown, RegExp]>([
    [{ maxAge: 48 }, /'maxAge' is 48, which is no duration; write a number and its unit/],
    [{ maxAge: 'long' }, /'maxAge' is "long", which is no duration/],
    [{ maxAge: '1m' }, /'maxAge' is "1m"; at least '15m'/],
    [{ duplicateWindow: '72h' }, /'duplicateWindow' is "72h", more than the max age \(2880 min\): raise maxAge too/],
    [{ duplicateWindow: '2m' }, /'duplicateWindow' is "2m"; at least '15m'/],
    [{ ackWait: '10ms' }, /'ackWait' is "10ms"; at least '1s'/],
    [{ ackWait: '2d' }, /'ackWait' is "2d"; at most '1h'/],
    [{ maxBytes: 0 }, /'maxBytes' is 0; it is a whole number from 1/],
    [{ maxBytes: -1 }, /'maxBytes' is -1; it is a whole number from 1/],
    [{ maxBytes: '1GB' }, /'maxBytes' is "1GB"/],
    [{ replicas: 0 }, /'replicas' is 0; it is a whole number from 1 to 5/],
    [{ replicas: 6 }, /'replicas' is 6/],
    [{ replicas: 1.5 }, /'replicas' is 1\.5/],
    [{ stream: 'a.b' }, /'stream' is "a\.b"; it is a name of letters/],
    [{ stream: 7 }, /'stream' is 7/],
    [{ prefix: 'a.*' }, /'prefix' is "a\.\*"; it is one to four tokens/],
    [{ prefix: '$JS' }, /'prefix' is "\$JS"/],
    [{ prefix: '' }, /'prefix' is ""/],
    [{ domain: 'a b' }, /'domain' is "a b"; it is one token/],
    [{ apiPrefix: '$JS.hub.API.>' }, /'apiPrefix' is "\$JS\.hub\.API\.>"; it is a subject/],
    [{ domain: 'hub', apiPrefix: 'js.hub' }, /'domain' and 'apiPrefix' are both given; give one/],
    [{ source: '' }, /'source' is ""; it is a URI reference/],
    [{ source: 'two words' }, /'source' is "two words"; it is a URI reference/],
    [{ servers: 4222 }, /'servers' is 4222; it is an address such as 'nats:\/\/127\.0\.0\.1:4222', or a list/],
    [{ servers: [] }, /'servers' is \[\]; it is an address/],
    [{ user: 7 }, /'user' is a number; it is a string/],
    [{ pass: 12345 }, /'pass' is a number; it is a string/],
    [{ tls: 'yes' }, /'tls' is "yes"; it is an object/],
    [{ authenticator: 'creds' }, /'authenticator' is a string; it is a function/],
    [{ maxage: '1h' }, /unknown option 'maxage' — did you mean 'maxAge'\? \(known: /],
    [null, /options are null; they are an object/],
    ['nats://x', /options are "nats:\/\/x"; they are an object/],
  ])('%j is refused', (options, says) => {
    expect(problems(options)).toEqual([expect.stringMatching(says)]);
  });

  it.each([[{ servers: 'nats://ann:secret@nats:4222' }], [{ servers: ['nats:4222', 'tls://token-secret@nats:4222'] }]])(
    'a login inside an address, which the package passes over, is refused without being repeated',
    (options) => {
      const found = problems(options);
      expect(found).toEqual([expect.stringMatching(/'servers' has a login in it, .* give user and pass, or token/)]);
      expect(found.join()).not.toContain('secret');
    },
  );

  it('are all told in the one report of the boot, beside what else is wrong', async () => {
    const bad = untyped({ servers: 1, pass: 7, maxAge: 'x', replicas: 9, strem: 'x' });
    const boot = stage.boot({ outbox: { transport: jetstream(bad), relay: { batch: 0 } } });
    const error = await boot.then(
      () => undefined,
      (reason: unknown) => reason,
    );
    expect(error).toBeInstanceOf(OutboxBootError);
    const { problems, message } = error as OutboxBootError;
    expect(problems.map(({ check }) => check)).toEqual(Array(6).fill('options'));
    for (const name of ['servers', 'pass', 'maxAge', 'replicas', 'strem', 'relay.batch'])
      expect(message).toContain(`'${name}'`);
  });
});
