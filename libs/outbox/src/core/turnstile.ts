/** So many at once; who comes when all places are taken waits in turn. */
export class Turnstile {
  private free: number;
  private readonly waiting: (() => void)[] = [];

  constructor(places: number) {
    this.free = places;
  }

  async through<T>(work: () => Promise<T>): Promise<T> {
    if (this.free > 0) this.free -= 1;
    else await new Promise<void>((go) => this.waiting.push(go));
    try {
      return await work();
    } finally {
      // The place is handed on: were it freed first, somebody new could take it before who waits.
      const next = this.waiting.shift();
      if (next) next();
      else this.free += 1;
    }
  }
}
