/** Deeper nesting than this is refused; Postgres itself gives up at some thousands, depending on its stack. */
const deepest = 512;

/**
 * The first thing in `value` that JSON or Postgres cannot hold, with its path, or `undefined`. Runs before any SQL: a
 * refusal by Postgres would leave the caller's transaction aborted. What JSON.stringify would drop or change without a
 * word (functions, `undefined` in lists, NaN, Map) is refused as well; `toJSON` (dates) is honoured.
 */
export function jsonProblem(value: unknown, path: string): Problem {
  return new Walk().look(value, path, 0);
}

type Problem = { path: string; problem: string } | undefined;

/** `value` as JSON that Postgres takes, or why there is none. */
export function jsonText(value: unknown, path: string): string | { path: string; problem: string } {
  try {
    const problem = jsonProblem(value, path);
    if (problem) return problem;
    const text: string | undefined = JSON.stringify(value);
    if (text !== undefined && !isRefused(text)) return text;
    return { path, problem: 'reads differently each time: a getter or toJSON in it gave something else than before' };
  } catch (error) {
    return { path, problem: `cannot be read: ${error instanceof Error ? error.message : String(error)}` };
  }
}

/** Whether JSON contains an escaped NUL or half of a surrogate pair (and no mere backslash followed by such letters). */
function isRefused(text: string): boolean {
  return text.includes('\\u') && /(?<!\\)(?:\\\\)*\\u(?:0000|d[89a-f])/.test(text);
}

class Walk {
  private readonly open = new Set<object>();

  look(value: unknown, path: string, depth: number): Problem {
    switch (typeof value) {
      case 'string':
        return textProblem(value, path);
      case 'number':
        return Number.isFinite(value) ? undefined : { path, problem: `is ${value}, which JSON cannot hold` };
      case 'boolean':
        return undefined;
      case 'object':
        return value === null ? undefined : this.object(value, path, depth);
      case 'bigint':
        return { path, problem: 'is a BigInt, which JSON cannot hold; send it as a string' };
      default:
        return {
          path,
          problem: `is ${typeof value === 'undefined' ? 'undefined' : `a ${typeof value}`}, which JSON cannot hold`,
        };
    }
  }

  private object(value: object, path: string, depth: number): Problem {
    if (value instanceof Date && Number.isNaN(value.getTime()))
      return { path, problem: 'is an invalid Date, which JSON would turn into null' };
    if (depth < deepest && 'toJSON' in value && typeof value.toJSON === 'function') {
      const json: unknown = value.toJSON();
      // JSON.stringify does not ask the answer for a toJSON of its own.
      return typeof json === 'object' && json !== null
        ? this.contents(json, path, depth)
        : this.look(json, path, depth);
    }
    return this.contents(value, path, depth);
  }

  private contents(value: object, path: string, depth: number): Problem {
    if (depth >= deepest) return { path, problem: `is nested deeper than ${deepest} levels` };
    if (this.open.has(value)) return { path, problem: 'refers back to an object that contains it' };
    if (isBoxed(value)) return this.look(value.valueOf(), path, depth);
    if (isLossy(value)) return { path, problem: `is a ${value.constructor.name}, which JSON cannot hold` };
    this.open.add(value);
    try {
      return this.inside(value, path, depth + 1);
    } finally {
      this.open.delete(value);
    }
  }

  private inside(value: object, path: string, depth: number): Problem {
    if (Array.isArray(value)) return first(value.entries(), ([i, item]) => this.look(item, `${path}[${i}]`, depth));
    return first(Object.entries(value), ([key, item]) => this.property(key, item, path, depth));
  }

  private property(key: string, item: unknown, path: string, depth: number): Problem {
    const inner = /^[A-Za-z_$][\w$]*$/.test(key) ? `${path}.${key}` : `${path}[${JSON.stringify(key)}]`;
    // An absent optional property is everyday TypeScript, and JSON leaves it out.
    if (item === undefined) return undefined;
    return textProblem(key, `the name of ${inner}`) ?? this.look(item, inner, depth);
  }
}

/** Why Postgres could not store a text, or `undefined`. */
export function textProblem(text: string, path: string): Problem {
  if (text.includes('\u0000')) return { path, problem: 'contains a NUL character, which Postgres cannot store' };
  if (!text.isWellFormed()) return { path, problem: 'contains half of a surrogate pair, which UTF-8 cannot hold' };
  return undefined;
}

/** Of these JSON.stringify would keep nothing, or not what makes them. (Those with a `toJSON` have been asked.) */
const lossy = [Map, Set, WeakMap, WeakSet, Promise, RegExp, Error, ArrayBuffer];

function isLossy(value: object): boolean {
  return lossy.some((type) => value instanceof type) || ArrayBuffer.isView(value);
}

function isBoxed(value: object): boolean {
  return [String, Number, Boolean, BigInt, Symbol].some((type) => value instanceof type);
}

function first<T>(items: Iterable<T>, look: (item: T) => Problem): Problem {
  for (const item of items) {
    const problem = look(item);
    if (problem) return problem;
  }
  return undefined;
}
