import { randomInt } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:net';

const mostTries = 100;

/**
 * A free port below those the system hands out by itself: while the server is down nobody else gets it, and a client
 * that keeps dialling it cannot be given it as its own end, and so be connected to itself.
 */
export async function freePort(): Promise<number> {
  for (let tries = 1; ; tries++) {
    const port = randomInt(10_000, 32_000);
    const server = createServer().listen(port, '127.0.0.1');
    try {
      await once(server, 'listening');
    } catch (error) {
      // Not for ever: where no socket can be had at all each try fails at once, and nothing else would get a turn.
      if (tries < mostTries) continue;
      throw new Error(`no free port among ${mostTries}`, { cause: error });
    }
    server.close();
    await once(server, 'close');
    return port;
  }
}
