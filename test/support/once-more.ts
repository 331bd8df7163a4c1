import { jest } from '@jest/globals';

/**
 * In CI a test that failed is run once more, and its first failure is printed: hundreds of tests stop, kill and cut off
 * real servers beside one another on two cores, and one of them now and then meets a machine that stood still for
 * seconds. By hand nothing is run again: what fails there is looked into.
 */
if (process.env['CI']) jest.retryTimes(1, { logErrorsBeforeRetry: true });
