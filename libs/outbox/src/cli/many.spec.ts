import type { ManyOptions, ManyReport } from '../index.js';
import { actOnMany, type ManyAction } from './many.js';
import { retry } from './render/actions.js';
import { Terminal } from './terminal.js';

class FakeTerminal extends Terminal {
  readonly lines: string[] = [];
  readonly asked: string[] = [];

  constructor(
    override readonly interactive: boolean,
    private readonly reply = true,
  ) {
    super();
  }

  override print(text: string): void {
    this.lines.push(text);
  }

  override note(text: string): void {
    this.lines.push(text);
  }

  override async ask(question: string): Promise<boolean> {
    this.asked.push(question);
    return this.reply;
  }
}

describe('an action on all that match', () => {
  let calls: ManyOptions[];
  let matching: number;
  const act = async (options: ManyOptions): Promise<ManyReport> => {
    calls.push(options);
    const dryRun = options.dryRun === true;
    return { matched: matching, done: matching, unchanged: 0, failed: 0, dryRun, rows: [] };
  };
  const run = (terminal: Terminal, options: ManyAction['options']) =>
    actOnMany(terminal, { verb: retry, what: 'deliveries', options, by: { by: 'ana', reason: 'INC-42' }, act });
  const changed = () => calls.filter(({ dryRun }) => !dryRun);

  beforeEach(() => {
    calls = [];
    matching = 1_234;
  });

  it('is asked for with the number that match, and carries who and why', async () => {
    const terminal = new FakeTerminal(true);
    expect(await run(terminal, { limit: 5_000 })).toBe(0);
    expect(terminal.asked).toEqual(['retry 1,234 deliveries?']);
    expect(changed()).toMatchObject([{ by: 'ana', reason: 'INC-42', limit: 5_000 }]);
    expect(terminal.lines).toEqual(['retried 1,234 of 1,234']);
  });

  it('changes nothing when the answer is no', async () => {
    const terminal = new FakeTerminal(true, false);
    expect(await run(terminal, {})).toBe(1);
    expect(changed()).toEqual([]);
    expect(terminal.lines).toEqual(['nothing was changed']);
  });

  it('is refused without a terminal to ask on, before anything is looked at', async () => {
    await expect(run(new FakeTerminal(false), {})).rejects.toMatchObject({ exitCode: 2 });
    await expect(run(new FakeTerminal(false), {})).rejects.toThrow(/look with --dry-run, then give --yes/);
    expect(calls).toEqual([]);
  });

  it('is not asked for with --yes, and counted only for a bar', async () => {
    const terminal = new FakeTerminal(false);
    expect(await run(terminal, { yes: true })).toBe(0);
    expect(calls).toHaveLength(1);
    expect(changed()).toHaveLength(1);
    expect(terminal.asked).toEqual([]);
  });

  it('with --dry-run says what would be done, and asks nobody', async () => {
    const terminal = new FakeTerminal(true);
    expect(await run(terminal, { dryRun: true })).toBe(0);
    expect(changed()).toEqual([]);
    expect(terminal.asked).toEqual([]);
    expect(terminal.lines).toEqual(['would retry 1,234 of 1,234']);
  });

  it('of nothing asks nobody, and ends with 1', async () => {
    matching = 0;
    const terminal = new FakeTerminal(true);
    expect(await run(terminal, {})).toBe(1);
    expect(terminal.asked).toEqual([]);
    expect(terminal.lines).toEqual(['nothing matches']);
  });
});
