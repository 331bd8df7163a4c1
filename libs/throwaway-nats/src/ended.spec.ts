import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { eventually } from '../../../test/support/eventually.js';
import { ended } from './ended.js';

describe('the end of a process', () => {
  const shell = async (script: string) => {
    const child = spawn('sh', ['-c', `${script} echo up; while :; do sleep 0.1; done`]);
    await once(child.stdout, 'data');
    return child;
  };

  it('is waited for, and is no error when it is over already', async () => {
    const child = await shell('');
    await ended(child, 'SIGTERM');
    expect(child.signalCode).toBe('SIGTERM');
    await ended(child, 'SIGTERM');
  });

  it('is not waited for without end: one that ignores the signal is killed, and named', async () => {
    const child = await shell('trap "" TERM;');
    await expect(ended(child, 'SIGTERM', 300)).rejects.toThrow(`process ${child.pid} (sh) did not end within 300 ms`);
    await eventually('it is killed', () => child.signalCode === 'SIGKILL');
  });
});
