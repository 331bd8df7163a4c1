import { onPool } from './ask.js';
import type { BootCheck } from './boot-check.js';

const toleratedMs = 30_000;

/** Nothing here goes by this machine's clock, but the app's own `runAt` does. */
export const clockCheck: BootCheck = {
  name: 'clock',
  run: async (context, warn) => {
    const { ahead } = await onPool(context, async (ask) => {
      const before = Date.now();
      const [row] = await ask(context.database.facts.clock());
      return { ahead: row ? (before + Date.now()) / 2 - row.now : 0 };
    });
    if (Math.abs(ahead) > toleratedMs)
      warn(
        `this machine's clock is ${Math.round(Math.abs(ahead) / 1_000)} s ${ahead > 0 ? 'ahead of' : 'behind'} the database's; the outbox goes by the database's clock alone, but a runAt that this app computes is off by as much, and so are the times in its logs: check the machine's time synchronisation (NTP)`,
      );
    return [];
  },
};
