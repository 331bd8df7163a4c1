import type { BootProblem } from '../outbox.errors.js';
import { jobLockKey } from '../tables/schema/schema-name.js';
import type { JobDefinition } from './job-definition.js';

/** The periodic jobs of this app by name, filled once at bootstrap. */
export class JobRegistry {
  private readonly byName = new Map<string, JobDefinition>();
  private readonly byKey = new Map<number, JobDefinition>();
  private readonly found: BootProblem[] = [];

  add(definition: JobDefinition): void {
    const { name, where } = definition;
    const standing = this.byName.get(name);
    if (standing) {
      this.problem(
        `job '${name}' is ${standing.where} and ${where}: a name stands for one method; give one of them another with the option name`,
      );
      return;
    }
    const neighbour = this.byKey.get(jobLockKey(name));
    if (neighbour) {
      this.problem(
        `jobs '${neighbour.name}' (${neighbour.where}) and '${name}' (${where}) have the same advisory lock key and would wait for each other; give one of them another name`,
      );
      return;
    }
    this.byName.set(name, definition);
    this.byKey.set(jobLockKey(name), definition);
  }

  problem(message: string, check = 'jobs'): void {
    this.found.push({ check, message });
  }

  /** What was wrong with the jobs, for the boot gate. */
  get problems(): readonly BootProblem[] {
    return this.found;
  }

  find(name: string): JobDefinition | undefined {
    return this.byName.get(name);
  }

  get all(): readonly JobDefinition[] {
    return [...this.byName.values()];
  }
}
