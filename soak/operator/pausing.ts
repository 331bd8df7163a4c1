import { setTimeout as pause } from 'node:timers/promises';
import type { PauseTarget } from 'nestjs-outbox';
import type { Desk } from '../desk.js';
import { pick } from '../random.js';
import type { PausedTime } from '../shift.js';

/** Pauses one of the targets for a while, ended by itself or by hand, now and then given a new end meanwhile. */
export function pausing(desk: Desk, lane: number, targets: readonly PauseTarget[]): () => Promise<void> {
  const random = desk.random(lane);
  return async () => {
    const target = pick(targets, random.next());
    if (!target) return;
    const times = random.next() < 0.3 ? 2 : 1;
    for (let n = 0; n < times; n++) {
      const until = random.next() < 0.4 ? new Date(Date.now() + random.between(500, 5_000)) : undefined;
      const op = desk.op();
      // Tells whether something was paused when the answer has come; what was paused without an answer proves nothing.
      await desk.inspector
        .pause(target, { reason: op, ...(until && { until }) })
        .then(() => desk.done('pause', op))
        .then(() => paused(desk, target, until, random.between(300, 4_000)))
        .catch((error: unknown) => desk.failed('pause', error));
    }
    // One that has an end of its own is sometimes left to it.
    if (random.next() < 0.7) await resume(desk, target);
  };
}

/** The time that counts ends before the next thing that is done to the pause. */
async function paused(desk: Desk, target: PauseTarget, until: Date | undefined, forMs: number): Promise<void> {
  const from = await desk.now();
  await pause(forMs);
  const to = Math.min(await desk.now(), until?.getTime() ?? Number.POSITIVE_INFINITY);
  const [[key = '', name = ''] = []] = Object.entries(target);
  const kind = (key === 'tenantId' ? 'tenant' : key) as PausedTime['kind'];
  if (to > from) desk.paused.push({ kind, name: String(name), from, to });
}

async function resume(desk: Desk, target: PauseTarget): Promise<void> {
  const op = desk.op();
  const was = await desk.inspector.resume(target, { reason: op });
  if (was) desk.done('resume', op);
}

/** Until the database has heard it. */
export async function resumeAll(desk: Desk): Promise<void> {
  for (let tries = 0; tries < 100; tries++) {
    try {
      const standing = await desk.inspector.pauses();
      if (standing.length === 0) return;
      for (const { kind, name } of standing)
        await resume(desk, { [kind === 'tenant' ? 'tenantId' : kind]: name } as unknown as PauseTarget);
    } catch (error) {
      desk.failed('resume', error);
      await pause(200);
    }
  }
  desk.surprises.push('what is paused could not be resumed');
}
