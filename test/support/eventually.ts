import { setTimeout as pause } from 'node:timers/promises';

/**
 * Waits until `look` returns something truthy and returns it; throws with what it saw last after `withinMs`. For
 * conditions in another process or in the database, where there is no signal to wait for.
 */
export async function eventually<T>(
  what: string,
  look: () => T | Promise<T>,
  withinMs = 15_000,
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

/** A promise and its handle, for handlers that wait for the test. */
export function gate<T = void>(): { readonly passed: Promise<T>; open(value: T): void } {
  let open: (value: T) => void = () => {};
  const passed = new Promise<T>((resolve) => {
    open = resolve;
  });
  return { passed, open };
}
