import type { ThrowawayPostgres } from 'throwaway-postgres';

export default async function globalTeardown(): Promise<void> {
  await (globalThis as { outboxTestServer?: ThrowawayPostgres }).outboxTestServer?.stop();
}
