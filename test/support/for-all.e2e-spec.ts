import { setTimeout as pause } from 'node:timers/promises';
import fc from 'fast-check';
import { forAll } from './for-all.js';

describe('a property that is checked for a while', () => {
  it('begins no run when its time is over, and waits for the one that is under way', async () => {
    let [begun, ended] = [0, 0];
    await forAll(
      fc.nat(),
      async () => {
        begun++;
        await pause(30);
        ended++;
      },
      { runs: 1_000, withinMs: 100 },
    );
    expect(begun).toBeGreaterThan(0);
    expect(begun).toBeLessThan(10);
    expect(ended).toBe(begun);
  });

  it('that fails ends with its time as well, however many smaller values there are', async () => {
    let made = 0;
    let madeInTime = 0;
    const large = fc.array(fc.nat(), { minLength: 100, maxLength: 200 }).map((value) => {
      made++;
      return value;
    });
    const checking = forAll(
      large,
      async () => {
        await pause(60);
        madeInTime = made;
        if (made === 1) throw new Error('this one');
      },
      { runs: 1_000, withinMs: 50 },
    );
    await expect(checking).rejects.toThrow('Property failed after 1 tests');
    expect(made - madeInTime).toBeLessThan(10);
  });
});
