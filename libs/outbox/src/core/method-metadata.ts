/** What a decorator says about one method. */
export interface MethodMetadata {
  readonly method: string;
}

type Carrier<T> = { [key: symbol]: readonly T[] | undefined };

/**
 * Adds to what is known of a method. It is kept on the class, not on the function: a decorator above or below may replace
 * the function and lose what it carried. `said` names the decorator in the error.
 */
export function addMethodMetadata<T extends MethodMetadata>(
  key: symbol,
  said: string,
  target: object,
  method: string | symbol,
  make: (method: string) => T,
): void {
  // Neither is found on an instance by its name, and a method that is not found looks like one that was not wanted.
  if (typeof target === 'function' || typeof method === 'symbol')
    throw new TypeError(
      `${said} on ${String(method)}: it belongs on a method of an instance with a plain name, neither static nor named by a symbol`,
    );
  // A new list on this very class: pushing into an inherited one would add it to the parent, too.
  const own = ownMetadata<T>(target.constructor, key);
  Object.defineProperty(target.constructor, key, { value: [...own, make(method)], configurable: true });
}

/** What is said of the methods of a class. What parent classes say counts, unless the class says the same method anew. */
export function methodMetadata<T extends MethodMetadata>(key: symbol, type: object): readonly T[] {
  const found = new Map<string, T[]>();
  for (
    let current: object | null = type;
    current && current !== Function.prototype;
    current = Object.getPrototypeOf(current)
  ) {
    const own = ownMetadata<T>(current, key);
    const methods = new Set(own.map((entry) => entry.method).filter((method) => !found.has(method)));
    for (const method of methods)
      found.set(
        method,
        own.filter((entry) => entry.method === method),
      );
  }
  return [...found.values()].flat();
}

function ownMetadata<T>(type: object, key: symbol): readonly T[] {
  return Object.hasOwn(type, key) ? ((type as Carrier<T>)[key] ?? []) : [];
}
