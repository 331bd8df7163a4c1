/** A method, seen from outside. */
export type Method = (...args: unknown[]) => unknown;

/** What runs in place of a method; `self` is the function that was called, from which a stack can be cut. */
export type Around = (original: Method, args: unknown[], self: Method) => unknown;

/**
 * Methods and properties of single objects, replaced for a while. Never of a prototype: two apps in one process must
 * not meet. What another library has put on top of ours meanwhile is left in place; ours beneath it then only passes on.
 */
export class InstancePatches {
  private active = true;
  private readonly undoing: (() => void)[] = [];

  /** Several on one method lie over each other, the last outermost. */
  method(target: object, name: string, around: Around): void {
    this.undoing.push(this.forGood(target, name, around));
  }

  /** The same for objects that may be many and short-lived: nothing is remembered, `undo` only makes it pass on. */
  forGood(target: object, name: string, around: Around): () => void {
    const original = (Reflect.get(target, name) as Method).bind(target);
    const patched: Method = (...args) => (this.active ? around(original, args, patched) : original(...args));
    return put(target, name, { configurable: true, enumerable: true, writable: true, value: patched });
  }

  /** A property that is computed whenever it is read. */
  getter(target: object, name: string, get: () => unknown): void {
    this.undoing.push(this.getterForGood(target, name, get));
  }

  getterForGood(target: object, name: string, get: () => unknown): () => void {
    return put(target, name, { configurable: true, get: () => (this.active ? get() : undefined) });
  }

  undo(): void {
    this.active = false;
    for (const undo of this.undoing.splice(0).reverse()) undo();
  }
}

function put(target: object, name: string, descriptor: PropertyDescriptor): () => void {
  const before = Object.getOwnPropertyDescriptor(target, name);
  Object.defineProperty(target, name, descriptor);
  return () => {
    const now = Object.getOwnPropertyDescriptor(target, name);
    if (now?.value !== descriptor.value || now?.get !== descriptor.get) return;
    if (before) Object.defineProperty(target, name, before);
    else Reflect.deleteProperty(target, name);
  };
}
