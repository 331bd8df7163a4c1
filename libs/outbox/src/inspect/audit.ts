import { isStorable } from '../core/storable.js';
import { InvalidQueryError } from '../outbox.inspect-errors.js';

/** Who does it and why; both go to `outbox.audit`. */
export interface ActionOptions {
  /** Default: host and process id of the app. */
  readonly by?: string;
  readonly reason?: string;
}

export interface Actor {
  readonly by: string;
  readonly reason: string | null;
}

/** What the audit cannot hold is refused before anything is done. */
export function actorOf({ by, reason }: ActionOptions, who: string): Actor {
  for (const [name, text] of Object.entries({ by, reason })) {
    if (text !== undefined && !(typeof text === 'string' && isStorable(text)))
      throw new InvalidQueryError(`${name} must be a text without NUL and half characters`);
  }
  return { by: by ?? who, reason: reason ?? null };
}
