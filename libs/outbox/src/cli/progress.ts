import cliProgress from 'cli-progress';
import type { ManyCounts } from '../index.js';

/** How far an action on many rows has come, on stderr of a terminal; silent elsewhere. */
export class Progress {
  private bar: cliProgress.SingleBar | undefined;

  constructor(private readonly total: number) {
    if (!process.stderr.isTTY) return;
    this.bar = new cliProgress.SingleBar(
      {
        format: ' {bar} {percentage}% | {value} of {total} | {failed} failed',
        hideCursor: true,
        clearOnComplete: true,
        gracefulExit: false,
        stream: process.stderr,
      },
      cliProgress.Presets.shades_classic,
    );
    this.bar.start(total, 0, { failed: 0 });
  }

  update({ done, unchanged, failed }: ManyCounts): void {
    // More may match by now than when they were counted.
    const so = done + unchanged + failed;
    this.bar?.setTotal(Math.max(this.total, so));
    this.bar?.update(so, { failed });
  }

  stop(): void {
    this.bar?.stop();
    this.bar = undefined;
  }
}
