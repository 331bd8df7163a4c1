import type { StandardSchemaV1 } from '@standard-schema/spec';
import type { EventDefinition } from './define-event.js';

/** What a schema says against a payload, with the path of the value, or the payload as the schema returns it. */
export type PayloadCheck = { readonly value: unknown } | { readonly path: string; readonly problem: string };

/** Runs a definition's schema, if it has one. A schema that throws or rejects counts as a mismatch. */
export async function checkPayload(definition: EventDefinition | undefined, payload: unknown): Promise<PayloadCheck> {
  if (!definition?.schema) return { value: payload };
  try {
    const result = await definition.schema['~standard'].validate(payload);
    const [issue] = result.issues ?? [];
    return issue
      ? { path: pathOf(issue), problem: `does not fit the schema: ${issue.message}` }
      : { value: (result as { value: unknown }).value };
  } catch (error) {
    return {
      path: 'payload',
      problem: `made the schema throw: ${error instanceof Error ? error.message : String(error)}`,
    };
  }
}

function pathOf(issue: StandardSchemaV1.Issue): string {
  const keys = (issue.path ?? []).map((step) => (typeof step === 'object' ? step.key : step));
  return keys.reduce<string>(
    (path, key) => (typeof key === 'number' ? `${path}[${key}]` : `${path}.${String(key)}`),
    'payload',
  );
}
