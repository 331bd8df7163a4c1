import { parseWhen } from './when.js';

const now = new Date(2026, 0, 31, 3, 15);
const next = (text: string) => parseWhen('--until', text, 'next', now);
const last = (text: string) => parseWhen('--from', text, 'last', now);

describe('a time on the command line', () => {
  it('by the clock is the next one, or of what is past the last one', () => {
    expect(next('06:00')).toEqual(new Date(2026, 0, 31, 6, 0));
    expect(next('02:00')).toEqual(new Date(2026, 1, 1, 2, 0));
    expect(last('02:00')).toEqual(new Date(2026, 0, 31, 2, 0));
    expect(last('6:00')).toEqual(new Date(2026, 0, 30, 6, 0));
    // This very minute has begun: the next one is tomorrow's.
    expect(next('03:15')).toEqual(new Date(2026, 1, 1, 3, 15));
  });

  it('as a length counts from now, either way', () => {
    expect(next('2h').getTime() - now.getTime()).toBe(7_200_000);
    expect(now.getTime() - last('30m').getTime()).toBe(1_800_000);
  });

  it('is taken in ISO form, with a blank too', () => {
    expect(next('2026-02-01T06:00Z')).toEqual(new Date('2026-02-01T06:00Z'));
    expect(next('2026-02-01 06:00:30.5+01:00')).toEqual(new Date('2026-02-01T05:00:30.500Z'));
    expect(last('2026-01-01')).toEqual(new Date('2026-01-01T00:00Z'));
  });

  it.each(['soon', '25:00', '6', '2026-13-01', '31.1.2026', '-2h', ''])(
    '%j is refused, and told how to be written',
    (text) => {
      expect(() => next(text)).toThrow(/--until '.*' is no time: write 06:00/);
    },
  );
});
