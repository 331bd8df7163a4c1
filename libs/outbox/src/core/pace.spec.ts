import { Pace } from './pace.js';

describe('Pace', () => {
  it('lets a burst through at once and keeps the turns after it apart', () => {
    const pace = new Pace(5, 3, () => 0);
    expect([1, 2, 3, 4, 5].map(() => pace.next())).toEqual([0, 0, 0, 5, 10]);
  });

  it('has no delay for turns that come slower than it allows', () => {
    let now = 0;
    const pace = new Pace(5, 1, () => now);
    for (now = 0; now < 100; now += 5) expect(pace.next()).toBe(0);
  });

  it('saves up no more than one burst in a quiet time', () => {
    let now = 0;
    const pace = new Pace(5, 2, () => now);
    pace.next();
    now = 10_000;
    expect([1, 2, 3].map(() => pace.next())).toEqual([0, 0, 5]);
  });
});
