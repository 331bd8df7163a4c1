/** Thrown when an internal call took longer than it may; the caller destroys what it was talking to. */
export class DeadlineExceeded extends Error {
  readonly code = 'ETIMEDOUT';

  constructor(what: string, milliseconds: number) {
    super(`${what} did not answer within ${milliseconds} ms`);
    this.name = 'DeadlineExceeded';
  }
}

/** `work`, or `DeadlineExceeded` after `milliseconds`; `late` then learns that the outcome will be ignored. */
export async function withDeadline<T>(
  what: string,
  milliseconds: number,
  work: Promise<T>,
  late?: () => void,
): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const limit = new Promise<never>((_, reject) => {
    timer = setTimeout(() => {
      late?.();
      reject(new DeadlineExceeded(what, milliseconds));
    }, milliseconds);
  });
  try {
    return await Promise.race([work, limit]);
  } finally {
    clearTimeout(timer);
  }
}
