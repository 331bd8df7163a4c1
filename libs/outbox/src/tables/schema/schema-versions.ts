import { v1 } from './v1.js';
import { v2 } from './v2.js';
import { v3 } from './v3.js';
import { v4 } from './v4.js';

/** One step of the schema. Append only: a released version never changes. */
export interface SchemaVersion {
  readonly version: number;
  readonly minLibrary: number;
  readonly up: string;
  readonly down: string;
}

export const schemaVersions: readonly SchemaVersion[] = [v1, v2, v3, v4];

/** The version this library needs at least. */
export const neededVersion = 4;

/** The newest version this library knows how to install. */
export const newestVersion = schemaVersions.length;

/** This library's level: a schema whose `min_library` is higher has moved on without it. */
export const libraryLevel = 4;

/** The ring of day partitions, fixed since version 1 (`schema_version.ring`, `schema_version.bucket_ms`). */
const ring = 10n;
const bucketMs = 86_400_000n;

/** The bucket of an event's id: the day in its first 48 bits, modulo the ring; the same as `outbox.bucket(id)`. */
export function bucketOf(eventId: string): number {
  return Number((BigInt(`0x${eventId.slice(0, 8)}${eventId.slice(9, 13)}`) / bucketMs) % ring);
}

/** The UTC day of an event's id, such as '2026-11-29'. */
export function dayOf(eventId: string): string {
  return new Date(Number.parseInt(`${eventId.slice(0, 8)}${eventId.slice(9, 13)}`, 16)).toISOString().slice(0, 10);
}
