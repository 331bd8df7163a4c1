import { didYouMean } from '../core/nearest.js';
import type { EventDefinition } from './define-event.js';
import { type EventRef, typeOf } from './event-ref.js';
import { covers } from './event-type.js';

/** A module's manifest: what it publishes, and what it handles that another app publishes. */
export interface EventManifest {
  readonly emits?: readonly EventRef[];
  readonly accepts?: readonly EventRef[];
}

/** The event types this app knows, gathered from every `forFeature`, and from the definitions its subscriptions name. */
export class KnownEvents {
  private readonly emitted = new Set<string>();
  private readonly accepted = new Set<string>();
  /** As the manifests say it, patterns too; former names of one's own types are not among them. */
  private readonly foreign = new Set<string>();
  private readonly definitions = new Map<string, EventDefinition>();

  add(manifest: EventManifest): void {
    for (const ref of manifest.emits ?? []) this.note(ref, this.emitted);
    for (const ref of manifest.accepts ?? []) {
      this.note(ref, this.accepted);
      this.foreign.add(typeOf(ref));
    }
  }

  /** Whether a manifest says that another app publishes this type. */
  accepts(type: string): boolean {
    return [...this.foreign].some((pattern) => covers(pattern, type));
  }

  get acceptsSome(): boolean {
    return this.foreign.size > 0;
  }

  has(type: string): boolean {
    return this.emitted.has(type) || this.accepted.has(type);
  }

  /**
   * Why a type should not be published, or `undefined`. An app that declares what it emits is held to it: a misspelt
   * name would be stored and reach nobody, without a word. One that declares nothing may publish anything.
   */
  strangeness(type: string): string | undefined {
    if (this.emitted.size === 0 || this.has(type)) return undefined;
    return `is emitted by no module of this app${didYouMean(type, this.types)}; add it to OutboxModule.forFeature({ emits: ['${type}'] }) of the module that publishes it`;
  }

  /** The definition of a type, when a manifest or a subscription gave one. */
  definition(type: string): EventDefinition | undefined {
    return this.definitions.get(type);
  }

  /** Remembers a definition without saying that anybody emits it. */
  define(definition: EventDefinition): void {
    for (const name of [definition.type, ...definition.formerly]) this.definitions.set(name, definition);
  }

  get types(): readonly string[] {
    return [...new Set([...this.emitted, ...this.accepted])];
  }

  /** Commands that this app emits or accepts. */
  get commands(): readonly EventDefinition[] {
    const known = this.types.map((type) => this.definitions.get(type));
    return [...new Set(known.filter((definition) => definition?.kind === 'command'))] as EventDefinition[];
  }

  private note(ref: EventRef, names: Set<string>): void {
    names.add(typeOf(ref));
    if (typeof ref === 'string') return;
    this.define(ref);
    for (const name of ref.formerly) this.accepted.add(name);
  }
}
