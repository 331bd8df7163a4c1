import type { ThrowawayNats } from 'throwaway-nats';
import type { ThrowawayPostgres } from 'throwaway-postgres';

export default async function globalTeardown(): Promise<void> {
  const servers = globalThis as { outboxTestServer?: ThrowawayPostgres; outboxTestNats?: ThrowawayNats };
  await Promise.all([servers.outboxTestServer?.stop(), servers.outboxTestNats?.stop()]);
}
