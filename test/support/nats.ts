import { describe, it } from '@jest/globals';
import { findNats, natsRemedy } from 'throwaway-nats';

/**
 * Like `describe`, for tests on the run's nats-server (`natsUrl`); without one they are skipped with the remedy in
 * their name, and fail where CI is set.
 */
export function describeWithNats(name: string, body: () => void): void {
  describeIf(Boolean(process.env['NATS_URL'] ?? process.env['OUTBOX_TEST_NATS']), name, body);
}

/** The same for tests that start, stop and kill servers of their own (`startNats`), which no NATS_URL can give. */
export function describeWithOwnNats(name: string, body: () => void): void {
  describeIf(Boolean(findNats()), name, body);
}

function describeIf(there: boolean, name: string, body: () => void): void {
  if (there) describe(name, body);
  else if (process.env['CI'])
    describe(name, () => it('needs nats-server', () => Promise.reject(new Error(natsRemedy))));
  else describe.skip(`${name} (skipped: ${natsRemedy})`, body);
}
