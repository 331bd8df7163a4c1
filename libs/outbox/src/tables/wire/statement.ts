import { createHash } from 'node:crypto';

/** What a parameter may be; everything travels as text and every parameter is cast in its statement. */
export type Value = string | number | null | readonly (string | number | null)[];

/** A statement with its parameters, ready to be sent. `Row` is what its rows look like. */
export interface Bound<Row = unknown> {
  readonly name: string;
  readonly text: string;
  readonly values: readonly (string | null)[];
  /** Answers with its command tag alone: nobody asks for a description of rows. */
  readonly rowless?: true;
  /** Never set; carries the type of the rows. */
  readonly row?: Row;
}

/** A statement of the library, to be bound again and again. */
export type Statement<Row = unknown> = (...values: Value[]) => Bound<Row>;

/**
 * Names a statement after what it does and what it says: two versions of the library, or two schemas, may share a
 * pooled connection without meeting under one prepared name. Postgres cuts names at 63 bytes.
 */
export function statement<Row = unknown>(name: string, text: string): Statement<Row> {
  const unique = `outbox_${name}_${createHash('sha256').update(text).digest('hex').slice(0, 8)}`;
  return (...values) => ({ name: unique, text, values: values.map(encode) });
}

/** A statement without parameters and without rows, ready to be sent. */
export function command(name: string, text: string): Bound<never> {
  return { ...statement<never>(name, text)(), rowless: true };
}

/** Replaces the schema's stand-in `outbox.` in a statement; the name was checked to be a plain lower-case identifier. */
export function inSchema(schema: string, text: string): string {
  return schema === 'outbox' ? text : text.replaceAll(/\boutbox\./g, `${schema}.`);
}

/** A length of time as a parameter. In seconds: before PostgreSQL 15 an interval of over 24.8 days in milliseconds is out of range. */
export function interval(milliseconds: number): string {
  return `${Math.round(milliseconds) / 1_000} seconds`;
}

function encode(value: Value): string | null {
  if (value === null) return null;
  return typeof value === 'object' ? `{${value.map(encodeElement).join(',')}}` : String(value);
}

function encodeElement(value: string | number | null): string {
  if (value === null) return 'NULL';
  return typeof value === 'number' ? String(value) : `"${value.replaceAll(/["\\]/g, '\\$&')}"`;
}
