import { setTimeout as pause } from 'node:timers/promises';
import { Injectable } from '@nestjs/common';

export interface Charge {
  readonly card: string;
  readonly cents: number;
  /** The network charges once per key, however often it is asked. */
  readonly idempotencyKey: string;
}

const answerMs = 100;

/** Stands for a card network: it takes its time, and refuses cards that begin with `declined`. */
@Injectable()
export class CardNetwork {
  async charge({ card }: Charge, signal: AbortSignal): Promise<void> {
    await pause(answerMs, undefined, { signal });
    if (card.startsWith('declined')) throw new Error(`card declined: ${card}`);
  }
}
