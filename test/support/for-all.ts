import fc from 'fast-check';

/**
 * Checks a property with as many runs as begin within the time. fast-check's own limit, `interruptAfterTimeLimit`, waits
 * for no run that is under way: that one goes on beside whatever the test does next.
 */
export async function forAll<T>(
  arbitrary: fc.Arbitrary<T>,
  run: (value: T) => Promise<void>,
  { runs, withinMs }: { readonly runs: number; readonly withinMs: number },
): Promise<void> {
  const end = performance.now() + withinMs;
  const inTime = async (value: T): Promise<void> => {
    if (performance.now() < end) await run(value);
  };
  await fc.assert(fc.asyncProperty(arbitrary, inTime), { numRuns: runs });
}
