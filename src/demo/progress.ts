import cliProgress from 'cli-progress';

/** A line now and then where there is no terminal. */
const lineEveryMs = 2_000;

/** How far a run has come: a bar on a terminal, otherwise a line now and then on stderr. */
export class Progress {
  private readonly bar: cliProgress.SingleBar | undefined;
  private lastLine = 0;

  constructor(private readonly total: number) {
    if (!process.stdout.isTTY || !process.stderr.isTTY) return;
    this.bar = new cliProgress.SingleBar(
      {
        format: ' {bar} {percentage}% of {total} deliveries  {text}',
        hideCursor: true,
        clearOnComplete: true,
        gracefulExit: false,
      },
      cliProgress.Presets.shades_classic,
    );
    this.bar.start(total, 0, { text: '' });
  }

  update(done: number, text: string): void {
    this.bar?.update(done, { text });
    if (this.bar || performance.now() - this.lastLine < lineEveryMs) return;
    this.lastLine = performance.now();
    this.note(`${done} of ${this.total} deliveries  ${text}`);
  }

  note(line: string): void {
    process.stderr.write(this.bar ? `\r\x1b[K${line}\n` : `${line}\n`);
    this.bar?.render();
  }

  stop(): void {
    this.bar?.stop();
  }
}
