import type { ExplainQuery, Explanation } from '../../index.js';
import type { Connected, Session } from '../session.js';
import { Terminal } from '../terminal.js';
import { CancelCommand } from './cancel.command.js';
import { PauseCommand } from './pause.command.js';
import { RetryCommand } from './retry.command.js';
import { SendCommand } from './send.command.js';
import { WhyCommand } from './why.command.js';

const id = '019a2b3c-0000-7000-8000-00000000000a';

class Recorder extends Terminal {
  readonly said: string[] = [];
  code: number | undefined;

  override print(text: string): void {
    this.said.push(text);
  }

  override end(code: number): void {
    this.code = code;
  }
}

/** A session whose parts are the given ones; it is never opened for wrong usage. */
function sessionOf(inspector: object): { session: Session; opened: () => number } {
  let opened = 0;
  const names = [{ name: 'ledger', formerly: ['accounting'], waiting: 3 }];
  const connected = { inspector, durables: { list: async () => names } } as unknown as Connected;
  const open = async (): Promise<Connected> => {
    opened += 1;
    return connected;
  };
  return { session: { open } as unknown as Session, opened: () => opened };
}

describe('why', () => {
  const nothing: Explanation = {
    events: [],
    findings: [{ eventId: null, durable: null, reason: 'not-found', state: null, text: 'no', next: null }],
    text: 'no such id',
  };
  const event = { id, type: 'a.b.c', tenantId: null, subject: null, payload: {}, headers: {}, publishedAt: new Date() };
  const why = async (what: string, found: keyof ExplainQuery | undefined, options = {}) => {
    const asked: ExplainQuery[] = [];
    const terminal = new Recorder();
    const explain = async (query: ExplainQuery): Promise<Explanation> => {
      asked.push(query);
      return found !== undefined && found in query ? { events: [event], findings: [], text: `by ${found}` } : nothing;
    };
    await new WhyCommand(terminal, sessionOf({ explain }).session).run([what], options);
    return { asked, said: terminal.said, code: terminal.code };
  };

  it('looks for an id first, then a unique key, then a subject', async () => {
    expect(await why(id.toUpperCase(), 'id')).toEqual({ asked: [{ id }], said: ['by id'], code: 0 });
    expect(await why('42', 'unique')).toEqual({ asked: [{ unique: '42' }], said: ['by unique'], code: 0 });
    const { asked, said } = await why(id, 'subject', { type: 'a.b.c', tenant: 'acme' });
    expect(asked.map((query) => Object.keys(query)[0])).toEqual(['id', 'unique', 'subject']);
    expect(asked[2]).toEqual({ subject: id, type: 'a.b.c', tenantId: 'acme' });
    expect(said).toEqual(['by subject']);
  });

  it('of what is nowhere ends with 1, and says so', async () => {
    expect(await why(id, undefined)).toMatchObject({ said: ['no such id'], code: 1 });
    expect((await why('42', undefined)).said).toEqual([expect.stringContaining("no event has '42' as its id")]);
  });
});

describe('retry of an event that is named', () => {
  it('heeds a further filter, and acts on one delivery alone only without', async () => {
    const filters: unknown[] = [];
    const one = { eventId: id, durable: 'ledger', outcome: 'done', detail: null };
    const { session } = sessionOf({
      retry: async () => one,
      retryMany: async (filter: unknown) => {
        filters.push(filter);
        return { matched: 0, done: 0, unchanged: 0, failed: 0, dryRun: false, rows: [] };
      },
    });
    const command = () => new RetryCommand(new Recorder(), session);
    await command().run([id], { durable: 'ledger' });
    expect(filters).toEqual([]);
    await command().run([id], { durable: 'ledger', error: 'timeout' });
    expect(filters).toEqual([{ eventId: id, durable: 'ledger', error: 'timeout' }]);
  });
});

describe('a durable that is named', () => {
  it('has to be there, or the nearest name is told, or the one it has now', async () => {
    const { session } = sessionOf({});
    const send = (to: string) => new SendCommand(new Recorder(), session).run([id], { to });
    await expect(send('ledgr')).rejects.toThrow("there is no durable 'ledgr' — did you mean 'ledger'?");
    await expect(send('something-else')).rejects.toThrow("there is no durable 'something-else': there are ledger");
    await expect(send('accounting')).rejects.toThrow("durable 'accounting' is called 'ledger' now");
  });
});

describe('wrong usage', () => {
  const { session, opened } = sessionOf({});
  const terminal = new Recorder();
  afterEach(() => expect(opened()).toBe(0));

  it.each([
    ['nothing', [], {}],
    ['an id and a key', [id], { event: 'a.b.c', unique: 'k' }],
    ['a type alone', [], { event: 'a.b.c' }],
    ['a key without its type', [], { unique: 'k' }],
    ['both a key and a subject', [], { event: 'a.b.c', unique: 'k', subject: 's' }],
    ['what is no id', ['42'], {}],
  ])('of cancel is found before a database is needed: %s', async (_, params, options) => {
    await expect(new CancelCommand(terminal, session).run(params, options)).rejects.toMatchObject({ exitCode: 2 });
  });

  it('of pause, retry and send, too', async () => {
    const pause = new PauseCommand(terminal, session);
    await expect(pause.run([], {})).rejects.toThrow(/pause what\?/);
    await expect(pause.run(['ledger'], { tenant: 'acme' })).rejects.toThrow(/pause what\?/);
    await expect(pause.run(['ledger'], { until: new Date(0) })).rejects.toThrow(/is past/);
    await expect(new RetryCommand(terminal, session).run([], {})).rejects.toThrow(/retry what\?/);
    await expect(new SendCommand(terminal, session).run([id], {})).rejects.toThrow(/send needs --to/);
  });
});
