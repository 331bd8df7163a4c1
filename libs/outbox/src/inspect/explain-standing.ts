import type { DurableFacts, EventFacts, LetterFacts, RowFacts, SceneFacts } from '../tables/explain.table.js';
import { relayName } from '../tables/queue.table.js';
import type { DeliveryState } from './delivery-info.js';
import type { ExplainReason } from './explanation.js';

/** Where one delivery stands, or the event itself (a durable of null), and the rows that say so. */
export interface Standing {
  readonly reason: ExplainReason;
  readonly state: DeliveryState | null;
  readonly durable: DurableFacts | null;
  readonly letter: LetterFacts | null;
}

/** What was asked of the database, and what this process knows by itself. */
export interface Scene extends SceneFacts {
  /** What keeps this process's transport from its broker; the database does not know. */
  readonly brokerDown: string | null;
}

/** `durables.seen_at` is written once a minute; the same is asked before a durable may be retired. */
const servedMs = 120_000;

/**
 * The rows of one event as findings: first the event itself, when it is on its way or concerns nobody, then durable by
 * durable. Of several truths about a delivery the first one stands: a verdict, running, its row, the relay.
 */
export function standings(event: EventFacts, scene: Scene): Standing[] {
  const way = onItsWay(event, scene);
  const durables = event.durables
    .filter((durable) => event.place !== 'letter' || concerned(durable, event))
    .map((durable) => ofDurable(durable, event, scene, way));
  const strangers = event.letters
    .filter(({ number, durable }) => number === null && durable !== relayName)
    .map((letter) => standing('dead', 'discarded', null, letter));
  const others = [...durables, ...strangers];
  return [...(way ? [way] : []), ...ofNobody(event, others), ...others];
}

/** Of a forgotten event the marks are forgotten as well, and whoever shows nothing has most likely handled it. */
function concerned({ mark, row, number }: DurableFacts, { letters }: EventFacts): boolean {
  return mark !== null || row !== null || letters.some((letter) => letter.number === number);
}

function standing(
  reason: ExplainReason,
  state: DeliveryState | null,
  durable: DurableFacts | null = null,
  letter: LetterFacts | null = null,
): Standing {
  return { reason, state, durable, letter };
}

/** null: it has left the queue, or will not be handled by anybody. */
function onItsWay(event: EventFacts, scene: Scene): Standing | null {
  const refused = event.letters.find((letter) => letter.durable === relayName);
  if (event.cancelled_ms !== null) return null;
  if (refused && refused.resolution !== 'retried') return standing('forwarding-fails', 'discarded', null, refused);
  const { queue, place } = event;
  if (queue === null && place !== 'scheduled') return null;
  if (queue !== null && queue.attempts > 0) return standing('forwarding-fails', 'pending');
  if ((queue?.due_ms ?? event.due_ms) > scene.now_ms) return standing('not-due', 'pending');
  if (scene.living === 0) return standing('relay-stopped', 'pending');
  return standing(scene.brokerDown === null ? 'relay-behind' : 'forwarding-fails', 'pending');
}

/** An event that was cancelled before anybody was to get it, or that nobody was to get at all. */
function ofNobody(event: EventFacts, others: readonly Standing[]): Standing[] {
  const somebody = others.some(({ reason }) => reason !== 'not-meant');
  if (event.cancelled_ms !== null)
    return others.some(({ reason }) => reason === 'cancelled') ? [] : [standing('cancelled', 'cancelled')];
  return somebody || event.letters.length > 0 ? [] : [standing('no-subscriber', null)];
}

function ofDurable(durable: DurableFacts, event: EventFacts, scene: Scene, way: Standing | null): Standing {
  const { mark, row, running, meant } = durable;
  const letter = event.letters.find(({ number }) => number === durable.number) ?? null;
  if (mark?.verdict === 'd') return standing('handled', 'completed', durable);
  if (mark?.verdict === 'x') return standing('dead', 'discarded', durable, letter);
  if (mark || (event.cancelled_ms !== null && (meant || row))) return standing('cancelled', 'cancelled', durable);
  if (event.place === 'letter' && letter) return standing('dead', 'discarded', durable, letter);
  if (running) return standing('running', 'running', durable);
  if (row) return standing(reasonOfRow(row, durable, scene), stateOfRow(row), durable);
  if (!meant) return standing('not-meant', null, durable);
  return rowless(durable, scene, way);
}

/** Meant for it, and no row and no verdict: in front of the relay, with a broker, or history that is being filled in. */
function rowless(durable: DurableFacts, scene: Scene, way: Standing | null): Standing {
  if (way?.letter) return standing(way.reason, null, durable, way.letter);
  if (way?.reason === 'not-due') return standing('not-due', 'pending', durable);
  if (durable.pause) return standing('paused', 'pending', durable);
  if (way) return standing(way.reason, 'pending', durable);
  return standing(served(durable, scene) ? 'queued' : 'no-worker', 'pending', durable);
}

function reasonOfRow(row: RowFacts, durable: DurableFacts, scene: Scene): ExplainReason {
  if (row.lease !== null && row.lease > 0) return row.held || scene.living > 0 ? 'queued' : 'no-worker';
  const due = row.due_ms <= scene.now_ms;
  if (durable.pause && (due || row.lease !== null)) return 'paused';
  if (!due) return stateOfRow(row) === 'retryable' ? 'retrying' : 'not-due';
  if (!served(durable, scene)) return 'no-worker';
  return stateOfRow(row) === 'retryable' ? 'retrying' : 'queued';
}

/** As the view says it. */
function stateOfRow({ attempt, snoozes, interruptions }: RowFacts): DeliveryState {
  return attempt > 0 || snoozes > 0 || interruptions > 0 ? 'retryable' : 'pending';
}

function served({ state, seen_ms }: DurableFacts, { living, now_ms }: Scene): boolean {
  return state === 'active' && living > 0 && seen_ms !== null && now_ms - seen_ms < servedMs;
}
