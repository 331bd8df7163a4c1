import { setTimeout as pause } from 'node:timers/promises';
import { BackgroundService } from './background-service.js';
import { WakeSignal } from './wake-signal.js';

class Loop extends BackgroundService {
  turns = 0;
  most = 0;
  private inside = 0;

  constructor(
    private readonly body: () => Promise<number>,
    readonly lines: string[] = [],
    wake = new WakeSignal(),
  ) {
    super('test.loop', { log: () => {}, warn: (l) => lines.push(l), error: (l) => lines.push(l) }, wake);
  }

  protected async turn(): Promise<number> {
    this.turns += 1;
    this.inside += 1;
    this.most = Math.max(this.most, this.inside);
    try {
      return await this.body();
    } finally {
      this.inside -= 1;
    }
  }
}

describe('a background service', () => {
  it('starts once, runs one turn at a time, and stops after the turn under way, however often it is asked', async () => {
    const loop = new Loop(() => pause(1, 0));
    for (let i = 0; i < 10; i++) loop.start();
    while (loop.turns < 3) await pause(1);
    await Promise.all([loop.stop(), loop.stop(), loop.stop()]);
    const { turns } = loop;
    loop.start();
    await pause(20);
    expect(loop.turns).toBe(turns);
    expect(loop.most).toBe(1);
  });

  it('leaves timers and sockets their turn, even one that is nudged in every turn and waits for nothing', async () => {
    const wake = new WakeSignal();
    const loop = new Loop(
      async () => {
        // In one microtask after the other this would go on for ever, and nothing else ever again.
        if (loop.turns < 100_000) wake.nudge();
        return 60_000;
      },
      [],
      wake,
    );
    loop.start();
    await pause(5);
    expect(loop.turns).toBeGreaterThan(1);
    expect(loop.turns).toBeLessThan(100_000);
    await loop.stop();
  });

  it('may be stopped before it starts', async () => {
    const loop = new Loop(async () => 0);
    await loop.stop();
    loop.start();
    await loop.stop();
    expect(loop.turns).toBe(0);
  });

  it('survives its errors, backs off, and says so about once a second', async () => {
    const wake = new WakeSignal();
    const loop = new Loop(() => Promise.reject(new Error('broken')), [], wake);
    loop.start();
    const nudging = setInterval(() => wake.nudge(), 1);
    const began = performance.now();
    await pause(500);
    clearInterval(nudging);
    await loop.stop();
    const seconds = (performance.now() - began) / 1_000;
    expect(loop.turns).toBeGreaterThan(1);
    expect(loop.turns).toBeLessThan(8);
    expect(loop.lines.length).toBeLessThanOrEqual(1 + Math.floor(seconds));
    expect(loop.lines[0]).toContain('broken');
  });

  it('is woken by a nudge', async () => {
    const wake = new WakeSignal();
    const loop = new Loop(async () => 60_000, [], wake);
    loop.start();
    await pause(5);
    wake.nudge();
    while (loop.turns < 2) await pause(1);
    await loop.stop();
    expect(loop.turns).toBe(2);
  });

  it('stands a thousand starts and stops in any order', async () => {
    await Promise.all(
      Array.from({ length: 1_000 }, async (_, i) => {
        const loop = new Loop(async () => 0);
        if (i % 3) loop.start();
        await pause(i % 5);
        await Promise.all([loop.stop(), Promise.resolve().then(() => loop.start()), loop.stop()]);
        expect(loop.most).toBeLessThanOrEqual(1);
      }),
    );
  });
});
