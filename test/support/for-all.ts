import fc from 'fast-check';

/**
 * Checks a property with as many runs as begin within the time; then it ends, also in the middle of the search for a
 * smaller value that fails. fast-check's own limit, `interruptAfterTimeLimit`, waits for no run that is under way: that
 * one goes on beside whatever the test does next. And to let runs that come too late pass would be worse than none: of a
 * large value there are tens of thousands of smaller ones, and a search through them that never waits for anything
 * lets no timer of Jest's end the test.
 */
export async function forAll<T>(
  arbitrary: fc.Arbitrary<T>,
  run: (value: T) => Promise<void>,
  { runs, withinMs }: { readonly runs: number; readonly withinMs: number },
): Promise<void> {
  const end = performance.now() + withinMs;
  const inTime = async (value: T): Promise<void> => {
    if (performance.now() >= end) throw new fc.PreconditionFailure(true);
    await run(value);
  };
  await fc.assert(fc.asyncProperty(arbitrary, inTime), { numRuns: runs });
}
