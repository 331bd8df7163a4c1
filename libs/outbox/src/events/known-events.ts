/** A module's manifest: what it publishes, and what it handles that another app publishes. */
export interface EventManifest {
  readonly emits?: readonly string[];
  readonly accepts?: readonly string[];
}

/** The event types this app knows, gathered from every `forFeature`. */
export class EventCatalog {
  private readonly emitted = new Set<string>();
  private readonly accepted = new Set<string>();

  add(manifest: EventManifest): void {
    for (const type of manifest.emits ?? []) this.emitted.add(type);
    for (const type of manifest.accepts ?? []) this.accepted.add(type);
  }

  has(type: string): boolean {
    return this.emitted.has(type) || this.accepted.has(type);
  }

  get types(): readonly string[] {
    return [...new Set([...this.emitted, ...this.accepted])];
  }
}
