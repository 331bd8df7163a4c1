const { relative } = require('node:path');

const everyMs = 60_000;
const longMs = 5 * 60_000;

/**
 * Names files that run unusually long. Every test has a time limit, but a process whose event loop is kept busy reaches
 * none, and without this a run that never ends says nothing of where.
 */
module.exports = class StuckReporter {
  #running = new Map();
  #timer;

  onRunStart() {
    this.#timer = setInterval(() => this.#tell(), everyMs);
    this.#timer.unref();
  }

  onTestFileStart({ path }) {
    this.#running.set(path, Date.now());
  }

  onTestFileResult({ path }) {
    this.#running.delete(path);
  }

  onRunComplete() {
    clearInterval(this.#timer);
  }

  #tell() {
    for (const [path, since] of this.#running) {
      const forMs = Date.now() - since;
      if (forMs > longMs)
        process.stderr.write(
          `still running after ${Math.round(forMs / 60_000)} min: ${relative(process.cwd(), path)}\n`,
        );
    }
  }
};
