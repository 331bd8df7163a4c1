#!/usr/bin/env node
import { exit } from './exit-codes.js';

/** nest-commander is an optional peer: whoever only runs the library need not have it. So it is loaded from here on. */
try {
  const { run } = await import('./program.js');
  await run();
} catch (error) {
  if (!lacksCommander(error)) throw error;
  process.stderr.write(
    'the command line of nestjs-outbox needs nest-commander: npm install --save-dev nest-commander\n',
  );
  process.exitCode = exit.incomplete;
}
// A module that was checked may hold connections and timers from its import on. What was written goes out first.
process.stdout.write('', () => process.exit());

function lacksCommander(error: unknown): boolean {
  const { code, message } = error as { code?: unknown; message?: unknown };
  return code === 'ERR_MODULE_NOT_FOUND' && String(message).includes("'nest-commander'");
}
