import { type } from 'arktype';
import { defineCommand, defineEvent, type EventDefinition, type OutboxEvent } from 'nestjs-outbox';
import * as v from 'valibot';
import { z } from 'zod';
import { eventually } from '../support/eventually.js';
import { effect, subscriber, useStage } from '../support/stage.js';

type Paid = { invoiceId: string; cents?: number };

const definitions: [string, EventDefinition<string, Paid, Paid>][] = [
  ['zod', defineEvent('zod.invoice.paid', z.object({ invoiceId: z.string(), cents: z.number().default(7) }))],
  [
    'valibot',
    defineEvent('valibot.invoice.paid', v.object({ invoiceId: v.string(), cents: v.optional(v.number(), 7) })),
  ],
  ['arktype', defineEvent('arktype.invoice.paid', type({ invoiceId: 'string', cents: 'number = 7' }))],
];

describe('a payload is checked against its schema', () => {
  const stage = useStage();
  const emits = definitions.map(([, definition]) => definition);

  it.each(definitions)('%s: at publish, before any SQL, with the path of the value', async (name, definition) => {
    const app = await stage.boot({ manifest: { emits } });
    const wrong = { invoiceId: 7 } as unknown as Paid;
    const id = await app.dataSource.transaction(async () => {
      for (const ref of [definition, definition.type]) {
        await expect(app.publisher.publish(ref, wrong)).rejects.toMatchObject({
          code: 'OUTBOX_INVALID_EVENT',
          path: 'payload.invoiceId',
          eventType: definition.type,
        });
        await expect(app.publisher.publishMany([{ event: ref, payload: wrong }])).rejects.toThrow(
          /does not fit the schema/,
        );
        await expect(app.publisher.publishNow(ref, wrong)).rejects.toThrow(/payload\.invoiceId/);
      }
      // The transaction is as good as new.
      return (await app.publisher.publish(definition, { invoiceId: name })).id;
    });
    // What is stored is what was published; defaults are the handler's.
    expect(await stage.database.value('SELECT payload FROM outbox.events WHERE id = $1', [id])).toEqual({
      invoiceId: name,
    });
  });

  it('at the handler, which gets what the schema makes of it', async () => {
    const seen: Paid[] = [];
    const app = await stage.boot({
      manifest: { emits },
      providers: definitions.map(([name, definition]) =>
        subscriber<Paid>(definition.type, `${name}-ledger`, (event) => void seen.push(event.payload)),
      ),
    });
    await app.dataSource.transaction(async () => {
      for (const [name, definition] of definitions) await app.publisher.publish(definition, { invoiceId: name });
    });
    await eventually('all three', () => seen.length === 3);
    expect(seen.toSorted((a, b) => (a.invoiceId < b.invoiceId ? -1 : 1))).toEqual([
      { invoiceId: 'arktype', cents: 7 },
      { invoiceId: 'valibot', cents: 7 },
      { invoiceId: 'zod', cents: 7 },
    ]);
  });

  it('a mismatch at the handler climbs the ladder like any failure: a newer version may understand it', async () => {
    const old = defineEvent('zod.contact.merged', z.object({ into: z.string() }));
    const app = await stage.boot({
      manifest: { emits: [old] },
      providers: [subscriber(old.type, 'merge', () => {}, { maxAttempts: 2, backoff: ['50ms'] })],
    });
    // Another version of the app publishes what this one does not know.
    await stage.database.query(`WITH e AS (INSERT INTO outbox.events (bucket, id, type, payload)
      SELECT outbox.bucket(id), id, '${old.type}', '{"into":[1]}' FROM (SELECT outbox.uuid7(now()) AS id) x RETURNING id)
      INSERT INTO outbox.queue (event_id) SELECT id FROM e`);
    await eventually('it is a dead letter in the end', () =>
      stage.database.value('SELECT count(*)::int FROM outbox.dead_letters'),
    );
    const [letter] = await stage.database.query('SELECT attempts, error FROM outbox.dead_letters');
    expect(letter).toMatchObject({
      attempts: 2,
      error: expect.stringMatching(/PayloadMismatchError.*'merge' cannot take 'zod.contact.merged'.*payload\.into/s),
    });
    await app.close();
  });

  it('a schema may take its time, and one that throws refuses', async () => {
    const slow = defineEvent(
      'zod.slow.checked',
      z.string().refine(async (text) => text !== 'bad'),
    );
    const broken = defineEvent(
      'zod.broken.checked',
      z.string().transform((): string => {
        throw new Error('schema bug');
      }),
    );
    const app = await stage.boot({ manifest: { emits: [slow, broken] } });
    let late: Promise<unknown> = Promise.resolve();
    await app.dataSource.transaction(async () => {
      await expect(app.publisher.publish(slow, 'bad')).rejects.toThrow(/does not fit/);
      await expect(app.publisher.publish(broken, 'x')).rejects.toThrow(/schema bug/);
      // Not awaited: the transaction waits for the schema as it does for the statement.
      late = app.publisher.publish(slow, 'good');
    });
    await expect(late).resolves.toMatchObject({ duplicate: false });
  });
});

describe('a command', () => {
  const stage = useStage();
  const Send = defineCommand<{ n: number }>()('mail.letter.send');

  it('without a handler anywhere is refused by a process that does everything, and a warning elsewhere', async () => {
    const Lost = defineCommand('mail.postcard.send');
    await expect(stage.boot({ manifest: { emits: [Lost] } })).rejects.toThrow(
      /command 'mail.postcard.send' has no handler/,
    );
    const worker = await stage.boot({ manifest: { accepts: [Lost] }, outbox: { role: 'worker' } });
    expect(worker.log.matching(/warn .*'mail.postcard.send' has no handler/)).toHaveLength(1);
    await worker.close();
  });

  it('with two durables is a loud warning, and a pattern beside them is none', async () => {
    const Print = defineCommand('post.label.print');
    const providers = [
      subscriber(Print as never, 'printer', () => {}),
      subscriber(Print as never, 'plotter', () => {}),
      subscriber('post.*.*', 'audit', () => {}),
    ];
    const app = await stage.boot({ manifest: { emits: [Print] }, providers });
    expect(app.log.matching(/'post.label.print' is handled by 2 durables \(plotter, printer\)/)).toHaveLength(1);
    await app.close();
  });

  it('that was published before its worker first came is handled: its durable begins at the beginning', async () => {
    const api = await stage.boot({ outbox: { role: 'publisher' }, manifest: { emits: [Send] } });
    await api.publisher.publishNow(Send, { n: 1 });
    // Another worker relays it to nobody.
    const other = await stage.boot({ outbox: { role: 'worker' }, manifest: { accepts: [Send] } });
    await stage.settled();
    await other.close();
    const seen: number[] = [];
    const late = (): unknown => subscribeTo(Send, (event) => void seen.push(event.payload.n));
    await stage.boot({ outbox: { role: 'worker' }, manifest: { accepts: [Send] }, providers: [late() as never] });
    await eventually('it is handled', () => seen.length === 1);
    expect(seen).toEqual([1]);
  });

  function subscribeTo(
    command: EventDefinition<string, { n: number }, { n: number }>,
    run: (event: OutboxEvent<{ n: number }>) => void,
  ) {
    return subscriber<{ n: number }>(command as never, 'mailer', async (event, context) => {
      await effect(event, context);
      run(event);
    });
  }
});
