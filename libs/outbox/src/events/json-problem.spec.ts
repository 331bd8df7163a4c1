import fc from 'fast-check';
import { jsonProblem } from './json-problem.js';

const cyclic: Record<string, unknown> = {};
cyclic['self'] = { back: cyclic };

function nested(depth: number): unknown {
  let value: unknown = 1;
  for (let i = 0; i < depth; i++) value = [value];
  return value;
}

describe('what JSON or Postgres cannot hold is found with its path', () => {
  it.each([
    ['NUL', { a: 'x\u0000y' }, 'payload.a'],
    ['half a surrogate pair', { a: ['\ud800'] }, 'payload.a[0]'],
    ['NUL in a name', { 'a\u0000': 1 }, 'the name of payload["a\\u0000"]'],
    ['BigInt', { amount: 1n }, 'payload.amount'],
    ['NaN', [1, Number.NaN], 'payload[1]'],
    ['Infinity', { x: Number.POSITIVE_INFINITY }, 'payload.x'],
    ['function', { f: () => 1 }, 'payload.f'],
    ['symbol', { s: Symbol('s') }, 'payload.s'],
    ['undefined in a list', { list: [1, undefined] }, 'payload.list[1]'],
    ['undefined itself', undefined, 'payload'],
    ['cycle', cyclic, 'payload.self.back'],
    ['Map', { m: new Map() }, 'payload.m'],
    ['an error, whose message JSON drops', { error: new Error('boom') }, 'payload.error'],
    ['bytes', { bytes: new Uint8Array(2) }, 'payload.bytes'],
    ['WeakMap', { w: new WeakMap() }, 'payload.w'],
    ['BigInt in an object of its own', { amount: Object(1n) }, 'payload.amount'],
    ['NaN in an object of its own', { x: Object(Number.NaN) }, 'payload.x'],
    ['what toJSON returns', { d: { toJSON: () => ({ v: 1n }) } }, 'payload.d.v'],
    ['an odd name', { 'a b': [Number.NaN] }, 'payload["a b"][0]'],
  ])('%s', (_, value, path) => {
    expect(jsonProblem(value, 'payload')?.path).toBe(path);
  });

  it('depth is limited, and the limit is said', () => {
    expect(jsonProblem(nested(512), 'payload')).toBeUndefined();
    expect(jsonProblem(nested(1_000), 'payload')?.problem).toContain('512');
  });

  it('an object may stand twice without containing itself', () => {
    const shared = { x: 1 };
    expect(jsonProblem({ a: shared, b: [shared] }, 'payload')).toBeUndefined();
  });

  it('toJSON is asked once, as JSON.stringify does it: its answer may be the object itself, or have a toJSON', () => {
    class Money {
      constructor(readonly cents: number) {}
      toJSON(): unknown {
        return this;
      }
    }
    class Failure extends Error {
      toJSON(): unknown {
        return { message: this.message };
      }
    }
    expect(jsonProblem({ price: new Money(5) }, 'payload')).toBeUndefined();
    expect(jsonProblem({ price: new Money(Number.NaN) }, 'payload')?.path).toBe('payload.price.cents');
    expect(jsonProblem({ error: new Failure('kept'), at: { toJSON: () => new Date() } }, 'payload')).toBeUndefined();
    expect(jsonProblem({ text: Object('\u{1f642}') }, 'payload')).toBeUndefined();
  });

  it('dates, absent properties and all of JSON pass, and come back the same', () => {
    expect(jsonProblem({ at: new Date(), gone: undefined }, 'payload')).toBeUndefined();
    fc.assert(
      fc.property(fc.jsonValue(), (value) => {
        const text = JSON.stringify(value);
        fc.pre(!text.includes('\\u0000') && text.isWellFormed() && !/\\ud[89a-f]/i.test(text));
        return jsonProblem(value, 'payload') === undefined;
      }),
    );
  });
});
