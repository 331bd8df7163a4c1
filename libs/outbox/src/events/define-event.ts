import type { StandardSchemaV1 } from '@standard-schema/spec';
import type { EventCatalog } from './event-catalog.js';

/**
 * An event type as a value: its name, and what its payload looks like. `In` is what `publish` takes, `Out` what a handler
 * gets (they differ when the schema fills in defaults or converts).
 */
export interface EventDefinition<N extends string = string, In = unknown, Out = unknown> {
  readonly type: N;
  /** A command is a type meant for exactly one durable. */
  readonly kind: 'event' | 'command';
  readonly schema: StandardSchemaV1<In, Out> | undefined;
  /** Names it had before. A subscription covers them as well, and a renamed type loses and replays nothing. */
  readonly formerly: readonly string[];
  /** Never set; carries the types. */
  readonly payload?: { readonly in: In; readonly out: Out };
}

export interface DefineOptions {
  readonly formerly?: readonly string[];
}

type Name = `${string}.${string}.${string}`;

/** The four ways to define a type: with a schema, from the catalogue, `<Payload>()('name')`, or of unknown payload. */
export interface Define {
  <const N extends Name, S extends StandardSchemaV1>(
    type: N,
    schema: S,
    options?: DefineOptions,
  ): EventDefinition<N, StandardSchemaV1.InferInput<S>, StandardSchemaV1.InferOutput<S>>;
  <const N extends Name>(
    type: N,
    schema?: undefined,
    options?: DefineOptions,
  ): N extends keyof EventCatalog
    ? EventDefinition<N, EventCatalog[N], EventCatalog[N]>
    : EventDefinition<N, unknown, unknown>;
  <P>(): <const N extends Name>(type: N, options?: DefineOptions) => EventDefinition<N, P, P>;
}

/**
 * Defines an event: something that happened, for any number of durables. The payload is checked against the schema (any
 * Standard Schema: zod, valibot, arktype …) when it is published, and again before a handler gets it. What is stored is
 * what was published, as JSON, so a schema that converts (dates) must accept the JSON form.
 */
export const defineEvent: Define = definer('event');

/** Defines a command: work to be done, for exactly one durable; a durable that is new gets what waits for it, too. */
export const defineCommand: Define = definer('command');

function definer(kind: 'event' | 'command'): Define {
  const make = (type: string, schema: StandardSchemaV1 | undefined, options: DefineOptions = {}): EventDefinition =>
    Object.freeze({ type, kind, schema, formerly: Object.freeze([...(options.formerly ?? [])]) });
  const define = (type?: string, schema?: StandardSchemaV1, options?: DefineOptions) =>
    type === undefined
      ? (name: string, opts?: DefineOptions) => make(name, undefined, opts)
      : make(type, schema, options);
  return define as Define;
}
