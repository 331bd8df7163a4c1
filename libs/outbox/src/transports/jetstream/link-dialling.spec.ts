import { once } from 'node:events';
import { connect, createServer, type Server, type Socket } from 'node:net';
import { eventually, gate } from '../../../../../test/support/eventually.js';
import { describeWithNats } from '../../../../../test/support/nats.js';
import { CapturedLog } from '../../../../../test/support/test-app.js';
import { natsUrl } from '../../../../../test/support/test-database.js';
import { resolve } from './jetstream.options.js';
import { Link } from './link.js';

/** In front of the server: takes connections, and lets nothing through until the gate is open. */
async function slowNetwork() {
  const through = gate();
  const open = new Set<Socket>();
  const target = new URL(natsUrl());
  const server: Server = createServer(async (client) => {
    open.add(client);
    client.on('error', () => {}).on('close', () => open.delete(client));
    await through.passed;
    const upstream = connect(Number(target.port), target.hostname).on('error', () => {});
    client.pipe(upstream).pipe(client);
    client.on('close', () => upstream.destroy());
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  const port = typeof address === 'object' ? address?.port : 0;
  return { url: `nats://127.0.0.1:${port}`, open, through, server };
}

describeWithNats('a connection that is closed while it is dialled', () => {
  const linkTo = (servers: string) => {
    const log = new CapturedLog();
    return { log, link: new Link(resolve({ servers }).settings, log) };
  };
  const promptMs = 1_000;

  it('is closed at once, and what the server answers afterwards is hung up on', async () => {
    const network = await slowNetwork();
    try {
      const { link, log } = linkTo(network.url);
      const opening = link.open().then(
        () => 'open',
        () => 'given up',
      );
      await eventually('it is dialled', () => network.open.size === 1);
      const begin = performance.now();
      await link.close();
      expect(performance.now() - begin).toBeLessThan(promptMs);
      network.through.open();
      expect(await opening).toBe('given up');
      await eventually('nothing is connected', () => network.open.size === 0);
      expect(link.connected).toBe(false);
      expect(log.matching(/connected to nats-server \d/)).toEqual([]);
    } finally {
      for (const socket of network.open) socket.destroy();
      network.server.close();
    }
  });

  it('is given up at once where nobody answers, between two tries, and not tried again', async () => {
    const network = await slowNetwork();
    network.server.close();
    await once(network.server, 'close');
    const { link, log } = linkTo(network.url);
    const opening = link.open().then(
      () => 'open',
      () => 'given up',
    );
    await eventually('it waits for the next try', () => log.matching(/waiting for nats-server/).length > 0);
    const begin = performance.now();
    await link.close();
    expect(await opening).toBe('given up');
    expect(performance.now() - begin).toBeLessThan(promptMs);
  });
});
