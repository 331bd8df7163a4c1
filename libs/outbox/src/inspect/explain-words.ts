import type { DurableFacts, EventFacts, LetterFacts, PauseFacts, RowFacts } from '../tables/explain.table.js';
import { relayName } from '../tables/queue.table.js';
import { DatabaseClock } from './database-clock.js';
import type { Scene, Standing } from './explain-standing.js';
import type { ExplainReason, Finding } from './explanation.js';
import { argument, firstLine } from './wording.js';

const cli = 'npx nestjs-outbox';

/** A relay takes thousands a second; what it has not taken by then has most likely another reason than the others. */
const slowMs = 30_000;
const lookAt = 'their logs say why (outbox.relay), such as a broker that is gone';

interface Words {
  readonly text: string;
  readonly next?: string | null;
}

/** What a standing is in words, and what to type next. */
export class ExplainWords {
  private readonly clock: DatabaseClock;

  constructor(private readonly scene: Scene) {
    this.clock = new DatabaseClock(scene.now_ms, scene.zone);
  }

  finding(event: EventFacts, standing: Standing): Finding {
    const { reason, state, durable, letter } = standing;
    const { text, next = null } = durable
      ? this.ofDurable(event, standing, durable)
      : this.ofEvent(event, reason, letter);
    const name = durable?.name ?? (letter && letter.durable !== relayName ? letter.durable : null);
    return { eventId: event.id, durable: name, reason, state, text, next };
  }

  private ofEvent(event: EventFacts, reason: ExplainReason, letter: LetterFacts | null): Words {
    const { clock, scene } = this;
    const due = event.queue?.due_ms ?? event.due_ms;
    const queued = `in the queue, due since ${clock.since(due)}`;
    const status = `${cli} status`;
    switch (reason) {
      case 'not-due':
        return { text: `due ${clock.when(due)}` };
      case 'relay-stopped':
        return {
          text: `${queued}: no worker lives that would forward it, ${this.lastSeen(scene.seen_ms)}`,
          next: status,
        };
      case 'forwarding-fails':
        return this.forwarding(event, letter, queued);
      case 'no-subscriber':
        return { text: `no durable was registered for ${event.type} when it was published` };
      case 'cancelled':
        return { text: `cancelled ${clock.when(event.cancelled_ms ?? 0)}, for everybody` };
      case 'dead':
        return letter ? this.dead(event, letter) : { text: 'given up' };
      default:
        return scene.now_ms - due < slowMs
          ? { text: `${queued}: the relay works on others`, next: status }
          : { text: `${queued}: workers live, and forward slowly or not at all: ${lookAt}`, next: `${cli} health` };
    }
  }

  private forwarding(event: EventFacts, letter: LetterFacts | null, queued: string): Words {
    const { clock, scene } = this;
    if (letter)
      return this.letter(event, letter, `given up ${clock.when(letter.dead_ms)} after ${tries(letter.attempts)}`);
    const { queue } = event;
    if (queue === null || queue.attempts === 0)
      return { text: `${queued}: ${scene.brokerDown ?? 'the broker is not reached'}` };
    const next = queue.due_ms > scene.now_ms ? `next try ${clock.when(queue.due_ms)}` : 'the next try is due';
    return {
      text: `refused ${queue.attempts === 1 ? 'once' : `${queue.attempts} times`}, ${next}: ${firstLine(queue.error)}`,
      next: `${cli} health`,
    };
  }

  private ofDurable(event: EventFacts, { reason, letter }: Standing, durable: DurableFacts): Words {
    const { mark, row, running, pause } = durable;
    const { clock } = this;
    switch (reason) {
      case 'handled':
        return { text: `${clock.time(mark?.started_ms ?? 0)} by ${by(mark)}, attempt ${mark?.attempts}` };
      case 'running':
        return { text: this.running(running, row) };
      case 'dead':
        return letter
          ? this.dead(event, letter)
          : { text: `given up ${clock.when(mark?.started_ms ?? 0)}; its dead letter was closed and is forgotten` };
      case 'cancelled':
        return { text: `cancelled ${clock.when(mark?.started_ms ?? event.cancelled_ms ?? 0)}` };
      case 'paused':
        return pause ? { text: this.paused(pause), next: resume(pause) } : { text: 'paused' };
      case 'retrying':
        return row ? this.retrying(event, durable, row) : { text: 'tried again' };
      case 'not-meant':
        return this.notMeant(event, durable);
      case 'no-worker':
        return this.noWorker(event, durable);
      case 'queued':
        return { text: this.queued(event, durable) };
      case 'not-due':
        return {
          text: `${row ? `not tried yet, due ${clock.when(row.due_ms)}` : 'not due yet'}${this.heldBack(pause)}`,
        };
      default:
        return { text: letter ? 'was never forwarded' : 'waits for the relay' };
    }
  }

  /** Whoever ignores `ctx.signal` is neither killed nor begun again before it ends. */
  private running(running: DurableFacts['running'], row: RowFacts | null): string {
    const { clock } = this;
    const attempts = row?.attempt ?? 0;
    const text = `by ${by(running)} since ${clock.since(running?.started_ms ?? 0)}, attempt `;
    if (running?.failed_ms == null) return `${text}${attempts + 1}`;
    return `${text}${attempts}, which failed ${clock.time(running.failed_ms)} and has not ended since: it keeps its slot until it does, or until that worker is restarted${row?.error == null ? '' : `: ${firstLine(row.error)}`}`;
  }

  private dead(event: EventFacts, letter: LetterFacts): Words {
    const attempts = letter.attempts === 1 ? '1 attempt' : `${letter.attempts ?? 'some'} attempts`;
    return this.letter(event, letter, `given up ${this.clock.when(letter.dead_ms)} after ${attempts}`);
  }

  private letter(event: EventFacts, { durable, error, resolved_ms, resolution }: LetterFacts, text: string): Words {
    const said = `${text}: ${firstLine(error)}`;
    if (resolved_ms !== null)
      return { text: `${said}; closed ${this.clock.when(resolved_ms)}: ${firstLine(resolution)}` };
    if (event.place === 'letter') return { text: `${said}; the event itself is forgotten, so it cannot run again` };
    return { text: said, next: `${cli} retry ${event.id} --durable ${argument(durable)}` };
  }

  private retrying(event: EventFacts, { name, pause, like }: DurableFacts, row: RowFacts): Words {
    const { clock, scene } = this;
    const next = row.due_ms > scene.now_ms ? clock.when(row.due_ms) : `due since ${clock.since(row.due_ms)}`;
    const why = row.error === null ? '' : `: ${firstLine(row.error)}`;
    const more =
      like.count > 0
        ? `   [${like.count} more like it${like.since_ms === null ? '' : ` since ${clock.time(like.since_ms)}`}]`
        : '';
    return {
      text: `attempt ${row.attempt + 1} ${next}${counted(row)}${why}${more}${this.heldBack(pause)}`,
      next: row.due_ms > scene.now_ms ? `${cli} retry ${event.id} --durable ${argument(name)}` : null,
    };
  }

  private queued(event: EventFacts, { row, pause, filling }: DurableFacts): string {
    if (row === null)
      return filling
        ? 'published before the durable began, which is given its history now'
        : `forwarded, and no worker has answered for it yet (published ${this.clock.when(event.created_ms)})`;
    if (row.lease === null) return `due since ${this.clock.since(row.due_ms)}, waits for a handler that is free`;
    if (row.lease < 0) return 'its pause is over, and it is taken within seconds';
    return row.held
      ? `taken by ${row.app ?? `worker ${row.lease}`}, begins when a handler is free${this.heldBack(pause)}`
      : `was taken by ${row.app ?? `worker ${row.lease}`}, which is gone; others take it within seconds`;
  }

  private noWorker(event: EventFacts, { state, row, seen_ms }: DurableFacts): Words {
    if (state === 'retired') return { text: 'the durable is retired, so nobody handles what is left of it' };
    const due = this.clock.since(row?.due_ms ?? event.due_ms);
    return { text: `due since ${due}: no worker that handles it, ${this.lastSeen(seen_ms)}`, next: `${cli} status` };
  }

  private notMeant({ id, type, created_ms }: EventFacts, { name, state, since_ms, ended_ms }: DurableFacts): Words {
    const ended = ended_ms === null ? '' : ` since ${this.clock.time(ended_ms)}`;
    if (state === 'retired') return { text: `the durable is retired${ended}` };
    if (since_ms === null || since_ms <= created_ms) return { text: `gets no ${type} any more${ended}` };
    return {
      text: `registered ${this.clock.time(since_ms)}, after this event was published`,
      next: `${cli} send ${id} --to ${argument(name)}`,
    };
  }

  private heldBack(pause: PauseFacts | null): string {
    return pause ? `; then held back: ${this.paused(pause)}` : '';
  }

  private paused({ kind, name, since_ms, until_ms, paused_by, reason }: PauseFacts): string {
    const what = kind === 'durable' ? 'durable' : `${kind} ${firstLine(name)}`;
    const who = paused_by === null ? '' : ` by ${firstLine(paused_by)}`;
    const until = until_ms === null ? '' : ` until ${this.clock.time(until_ms)}`;
    return `${what} is paused since ${this.clock.time(since_ms)}${until}${who}${reason === null ? '' : `: "${firstLine(reason)}"`}`;
  }

  private lastSeen(milliseconds: number | null): string {
    return milliseconds === null ? 'and none was seen ever' : `the last was seen ${this.clock.when(milliseconds)}`;
  }
}

function by(who: { readonly worker: number | null; readonly app: string | null } | null): string {
  if (who?.app) return firstLine(who.app);
  return who?.worker == null ? 'a worker' : `worker ${who.worker}, which is gone`;
}

function tries(attempts: number | null): string {
  return attempts === 1 ? '1 try' : `${attempts ?? 'some'} tries`;
}

/** What was not charged as an attempt. */
function counted({ interruptions, snoozes }: RowFacts): string {
  const times = (n: number): string => (n === 1 ? 'once' : `${n} times`);
  const broken = interruptions > 0 ? `, interrupted ${times(interruptions)}` : '';
  return `${broken}${snoozes > 0 ? `, put off ${times(snoozes)} by the handler` : ''}`;
}

function resume({ kind, name }: PauseFacts): string {
  return `${cli} resume ${kind === 'durable' ? '' : `--${kind} `}${argument(name)}`;
}
