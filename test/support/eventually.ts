import { setTimeout as pause } from 'node:timers/promises';

/**
 * No promise of anybody's, only the patience of the tests on a busy machine. Shorter than what mends everything in the end:
 * after 20 s schedules are registered again, after 30 s a delivery of a foreign type comes back.
 */
const patienceMs = 19_000;

/**
 * Waits until `look` returns something truthy and returns it; throws with what it saw last after `withinMs`. For
 * conditions in another process or in the database, where there is no signal to wait for. What is promised within a time
 * says so; everything else is given the same patience.
 */
export async function eventually<T>(
  what: string,
  look: () => T | Promise<T>,
  withinMs = patienceMs,
): Promise<Exclude<T, undefined | null | false | 0 | ''>> {
  const end = performance.now() + withinMs;
  let seen: unknown;
  while (performance.now() < end) {
    try {
      const result = await look();
      if (result) return result as Exclude<T, undefined | null | false | 0 | ''>;
      seen = result;
    } catch (error) {
      seen = error;
    }
    await pause(10);
  }
  throw new Error(
    `${what} did not happen within ${withinMs} ms; last seen: ${seen instanceof Error ? seen.stack : JSON.stringify(seen)}`,
  );
}

/**
 * Waits until a count has reached `target`, for work that a busy machine takes long for: it is given up when the count
 * has not changed for as long as everything else is waited for.
 */
export async function reaches(what: string, target: number, count: () => Promise<number>): Promise<void> {
  for (let seen: number | undefined; seen !== target; ) {
    const before = seen;
    await eventually(`${what}: ${target}`, async () => {
      seen = await count();
      if (seen === before) throw new Error(`still ${seen}`);
      return true;
    });
  }
}

/** A promise and its handle, for handlers that wait for the test. */
export function gate<T = void>(): { readonly passed: Promise<T>; open(value: T): void } {
  let open: (value: T) => void = () => {};
  const passed = new Promise<T>((resolve) => {
    open = resolve;
  });
  return { passed, open };
}
