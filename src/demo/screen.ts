/** How often the block is printed where there is no terminal to redraw it on. */
const printEveryMs = 5_000;

/** A block of lines on stdout that is redrawn in place, and notes on stderr above it. */
export class Screen {
  private drawn = 0;
  private printed = 0;

  draw(lines: readonly string[]): void {
    if (process.stdout.isTTY) {
      this.erase();
      process.stdout.write(`${lines.join('\n')}\n`);
      this.drawn = lines.length;
    } else if (performance.now() - this.printed >= printEveryMs || this.printed === 0) {
      this.printed = performance.now();
      process.stdout.write(`${lines.join('\n')}\n`);
    }
  }

  note(line: string): void {
    this.erase();
    process.stderr.write(`${line}\n`);
  }

  private erase(): void {
    if (this.drawn > 0) process.stdout.write(`\x1b[${this.drawn}A\x1b[J`);
    this.drawn = 0;
  }
}
