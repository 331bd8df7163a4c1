/** Thrown when an internal call took longer than it may; the caller destroys what it was talking to. */
export class DeadlineExceeded extends Error {
  readonly code = 'ETIMEDOUT';

  constructor(what: string, milliseconds: number) {
    super(`${what} did not answer within ${milliseconds} ms`);
    this.name = 'DeadlineExceeded';
  }
}

/** `work`, or `DeadlineExceeded` after `milliseconds`; `late` then learns that the outcome will be ignored. */
export function withDeadline<T>(what: string, milliseconds: number, work: Promise<T>, late?: () => void): Promise<T> {
  // One promise and no race: this stands around every message of a handling.
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => {
      late?.();
      reject(new DeadlineExceeded(what, milliseconds));
    }, milliseconds);
    work.then(
      (value) => {
        clearTimeout(timer);
        resolve(value);
      },
      (error: unknown) => {
        clearTimeout(timer);
        reject(error);
      },
    );
  });
}
