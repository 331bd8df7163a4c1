/** The first import of a process whose clock is wrong by CLOCK_SKEW_MS: for everything that is loaded after it. */
const skewMs = Number(process.env['CLOCK_SKEW_MS'] ?? 0);

if (skewMs !== 0) {
  const Right = Date;
  globalThis.Date = class extends Right {
    constructor(...given: []) {
      if (given.length === 0) super(Right.now() + skewMs);
      else super(...given);
    }

    static override now(): number {
      return Right.now() + skewMs;
    }
  } as DateConstructor;
}
