import type { QueryRunner } from 'typeorm';

/**
 * One statement of ours at a time on a connection. node-postgres warns when a query is sent while another runs, and
 * will refuse it from version 9; parallel publishes in one transaction are everyday code.
 */
export class RunnerQueue {
  private readonly last = new WeakMap<QueryRunner, Promise<unknown>>();

  run<T>(runner: QueryRunner, work: () => Promise<T>): Promise<T> {
    const before = this.last.get(runner);
    const result = before ? before.then(work, work) : work();
    this.last.set(runner, result);
    return result;
  }
}
