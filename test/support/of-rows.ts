import { it } from '@jest/globals';

type It = (name: string, body: () => Promise<void>, timeoutMs?: number) => void;

/**
 * Like `it`, for tests that look at what Postgres alone does with first deliveries (the fan-out and its rows of
 * `deliveries`), or at payloads larger than a broker takes; over a broker they are skipped.
 */
export const itOfRows: It = (globalThis as { outboxTransport?: string }).outboxTransport === 'jetstream' ? it.skip : it;
