import { until } from '../probe-app.js';

/** Handlers wait here until the test lets them go, and the test until they are here. */
export class Gate {
  private arrived = 0;
  private release: () => void = () => {};
  private readonly opened = new Promise<void>((resolve) => {
    this.release = resolve;
  });

  /** For the handler. */
  async pass(): Promise<void> {
    this.arrived += 1;
    await this.opened;
  }

  /** For the test. */
  async reached(times = 1): Promise<void> {
    await until(`a handler waits (${times})`, async () => this.arrived >= times);
  }

  open(): void {
    this.release();
  }
}
