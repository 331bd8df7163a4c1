import { methodMetadata } from '../core/method-metadata.js';
import { type JobMetadata, jobsKey } from './periodic-job.decorator.js';

/** The only reader of what `@PeriodicJob` wrote. */
export function jobsOf(type: object): readonly JobMetadata[] {
  return methodMetadata<JobMetadata>(jobsKey, type);
}
