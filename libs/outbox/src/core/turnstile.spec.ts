import { setImmediate } from 'node:timers/promises';
import { Turnstile } from './turnstile.js';

describe('a turnstile', () => {
  it('lets so many through at once, the others in the order in which they came, and nobody is forgotten', async () => {
    const turnstile = new Turnstile(3);
    const order: number[] = [];
    let inside = 0;
    let most = 0;
    const visits = Array.from({ length: 20 }, (_, n) =>
      turnstile.through(async () => {
        order.push(n);
        most = Math.max(most, ++inside);
        await setImmediate();
        inside -= 1;
        if (n % 5 === 0) throw new Error(`${n}`);
        return n;
      }),
    );
    const settled = await Promise.allSettled(visits);
    expect(settled.filter(({ status }) => status === 'rejected')).toHaveLength(4);
    expect(order).toEqual(Array.from({ length: 20 }, (_, n) => n));
    expect(most).toBe(3);
    // All places are free again.
    await Promise.all([1, 2, 3].map(() => turnstile.through(async () => expect(++inside).toBeLessThanOrEqual(3))));
  });
});
