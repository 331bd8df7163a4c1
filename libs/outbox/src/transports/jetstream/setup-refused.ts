import type { BootProblem } from '../../outbox.errors.js';

/**
 * What stands with the broker cannot be used as it is, and is changed by nobody here: it may be somebody else's. At a
 * start it keeps the process from booting; later it is only said, since what runs shall go on.
 */
export class SetupRefused extends Error {
  readonly problems: readonly BootProblem[];

  constructor(...problems: readonly BootProblem[]) {
    super(problems.map(({ message }) => message).join('; '));
    this.name = 'SetupRefused';
    this.problems = problems;
  }
}
