import fc from 'fast-check';
import { filterOf, filtersOf, patternOf, subjectCovers, subjectOf, subjectsMeet, typeOf } from './subjects.js';

/** Few tokens, so that patterns cover one another, and meet half-way, often. */
const token = fc.constantFrom('a', 'b', 'c');
const typeToken = fc.tuple(token, token, token).map((tokens) => tokens.join('.'));
const wildcard = fc.oneof(token, fc.constant('*'));
const pattern = fc.tuple(wildcard, wildcard, wildcard).map((tokens) => tokens.join('.'));
const patterns = fc.array(pattern, { minLength: 1, maxLength: 6 });

const everyType = ['a', 'b', 'c'].flatMap((x) =>
  ['a', 'b', 'c'].flatMap((y) => ['a', 'b', 'c'].map((z) => `${x}.${y}.${z}`)),
);
const gets = (filters: readonly string[], type: string) =>
  filters.filter((filter) => subjectCovers(filter, `p.q.${type}`));

/** Whether one of them is, or stands for, the type. */
const wants = (patterns: readonly string[], type: string) => patterns.some((pattern) => subjectCovers(pattern, type));

describe('filters for types and patterns', () => {
  it('bring everything that is wanted, each subject by one filter at most', () => {
    fc.assert(
      fc.property(patterns, (wanted) => {
        const filters = filtersOf('p.q', wanted);
        for (const type of everyType) {
          const by = gets(filters, type);
          expect(by.length).toBeLessThanOrEqual(1);
          if (wants(wanted, type)) expect(by).toHaveLength(1);
        }
        for (const one of filters) for (const other of filters) expect(subjectsMeet(one, other)).toBe(one === other);
      }),
      { numRuns: 500 },
    );
  });

  it('bring nothing else, unless patterns meet half-way: the server refuses such a pair', () => {
    fc.assert(
      fc.property(patterns, (wanted) => {
        const halfway = wanted.some((one) =>
          wanted.some((other) => subjectsMeet(one, other) && !subjectCovers(one, other) && !subjectCovers(other, one)),
        );
        fc.pre(!halfway);
        for (const type of everyType) expect(gets(filtersOf('p.q', wanted), type).length > 0).toBe(wants(wanted, type));
      }),
      { numRuns: 500 },
    );
  });

  it('are the same in whatever order types were registered', () => {
    fc.assert(
      fc.property(patterns, (wanted) => {
        expect(filtersOf('p', [...wanted, ...wanted].toReversed())).toEqual(filtersOf('p', wanted));
        expect(filterOf('p', wanted.toReversed())).toBe(filterOf('p', wanted));
      }),
    );
  });

  it('are one filter that brings everything, for servers that take one', () => {
    fc.assert(
      fc.property(patterns, (wanted) => {
        for (const type of everyType)
          if (wants(wanted, type)) expect(subjectCovers(filterOf('p.q', wanted), `p.q.${type}`)).toBe(true);
      }),
    );
  });

  it('can be read back, and made wider without losing anything', () => {
    fc.assert(
      fc.property(patterns, patterns, (before, wanted) => {
        const read = filtersOf('p.q', before).flatMap((filter) => patternOf('p.q', filter) ?? []);
        const after = filtersOf('p.q', [...read, ...wanted]);
        for (const one of [...before, ...wanted])
          expect(after.some((filter) => subjectCovers(filter, `p.q.${one}`))).toBe(true);
      }),
    );
  });
});

describe('subjects and types', () => {
  it('follow from one another', () => {
    fc.assert(fc.property(typeToken, (type) => expect(typeOf('p.q', subjectOf('p.q', type) ?? '')).toBe(type)));
  });

  it.each(['a.b', 'a.b.c.d', 'a..c', '.b.c', 'a.b.', 'A.b.c', 'a.b c.d', 'a.b.c\r\n', 'a.*.c', 'a.b.>', 'ä.b.c', ''])(
    'are none for %j',
    (type) => {
      expect(subjectOf('p', type)).toBeUndefined();
      expect(typeOf('p', `p.${type}`)).toBeUndefined();
    },
  );

  it('are none for a type that is too long to have been published', () => {
    const type = `a.b.${'c'.repeat(125)}`;
    expect(subjectOf('p', type)).toBeUndefined();
    expect(typeOf('p', `p.${type}`)).toBeUndefined();
  });

  it.each([
    ['p.>', 'p.a', true],
    ['p.>', 'p', false],
    ['p.>', 'p.*.b', true],
    ['p.>', 'p.>', true],
    ['p.*', 'p.>', false],
    ['p.a.>', 'p.>', false],
    ['>', 'p', true],
    ['p.*.c', 'p.a.c', true],
    ['p.*.c', 'p.a.b.c', false],
    ['p.a.c', 'p.*.c', false],
  ])('%s covers %s: %s', (wide, narrow, covers) => expect(subjectCovers(wide, narrow)).toBe(covers));

  it.each([
    ['p.>', 'p.a.b', true],
    ['p.>', 'q.>', false],
    ['p.a.*', 'p.*.b', true],
    ['p.a.c', 'p.*.b', false],
    ['p.a', 'p.a.b', false],
    ['*.a', 'p.>', true],
  ])('%s and %s meet: %s', (one, other, meet) => {
    expect(subjectsMeet(one, other)).toBe(meet);
    expect(subjectsMeet(other, one)).toBe(meet);
  });
});
