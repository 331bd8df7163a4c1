import type { DiscoveryService } from '@nestjs/core';

type Wrapper = ReturnType<DiscoveryService['getProviders']>[number];
/** A class as far as it is looked at here. */
export interface NamedClass {
  readonly name: string;
}

/** What an explorer wants to know of the providers and controllers of an app. */
export interface ScanVisitor {
  /** A live singleton, once each, whatever its token is. */
  instance(instance: object, type: NamedClass): void;
  /** Its instances belong to a request, or to whoever injects them. */
  notStatic(type: NamedClass): void;
  /** A class of which there is one more instance; that one is not visited. */
  again(type: NamedClass, before: string, here: string): void;
}

/**
 * Goes through the live instances of an app. Instances and not metadata of tokens: the class of what a factory or a value
 * provides is not its token.
 */
export class ProviderScan {
  constructor(private readonly discovery: DiscoveryService) {}

  visit(visitor: ScanVisitor): void {
    const seen = new Set<object>();
    /** Classes, and the module in which each was met first. */
    const homes = new Map<object, string>();
    for (const wrapper of [...this.discovery.getProviders(), ...this.discovery.getControllers()])
      look(wrapper, visitor, seen, homes);
  }
}

function look(wrapper: Wrapper, visitor: ScanVisitor, seen: Set<object>, homes: Map<object, string>): void {
  if (!wrapper.isDependencyTreeStatic() || wrapper.isTransient) {
    if (typeof wrapper.metatype === 'function') visitor.notStatic(wrapper.metatype);
    return;
  }
  const instance: unknown = wrapper.instance;
  // An alias (useExisting) is a second wrapper around the same instance.
  if (typeof instance !== 'object' || instance === null || seen.has(instance)) return;
  seen.add(instance);
  const type = Object.getPrototypeOf(instance)?.constructor;
  if (typeof type !== 'function') return;
  const here = wrapper.host?.name ?? 'a module';
  const before = homes.get(type);
  if (before === undefined) {
    homes.set(type, here);
    visitor.instance(instance, type);
  } else visitor.again(type, before, before === here ? 'once more there' : `in ${here}`);
}
