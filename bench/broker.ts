import { randomBytes } from 'node:crypto';
import { jetstream } from 'nestjs-outbox/jetstream';
import { findNats, readInfo, startNats } from 'throwaway-nats';

/** A nats-server to measure on: the one of NATS_URL, or a throw-away one. */
export interface BenchBroker {
  readonly url: string;
  readonly version: string;
  stop(): Promise<void>;
}

/** `undefined` when there is none to start. */
export async function openBroker(): Promise<BenchBroker | undefined> {
  const url = process.env['NATS_URL'];
  if (url) return { url, version: (await readInfo(url)).version, stop: async () => {} };
  return findNats() ? startNats() : undefined;
}

/** A stream that no run before it has filled. */
export function streamName(): string {
  return `bench-${randomBytes(6).toString('hex')}`;
}

export const overJetstream = (servers: string, stream: string) => jetstream({ servers, stream, prefix: stream });
