import { hostname, userInfo } from 'node:os';
import type { ActionOptions } from '../index.js';
import type { ActingOptions } from './options.js';

/** Who acts and why, for the audit. */
export function actor({ by, reason }: ActingOptions): ActionOptions {
  return { by: by ?? `${userName()}@${hostname()}`, ...(reason === undefined ? {} : { reason }) };
}

/** A container may run under a number that no user has. */
function userName(): string {
  try {
    return userInfo().username;
  } catch {
    return process.env['USER'] ?? `uid ${process.getuid?.() ?? 'unknown'}`;
  }
}
