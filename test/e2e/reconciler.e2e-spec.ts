import { Durables, type TransportFactory } from 'nestjs-outbox';
import { eventually } from '../support/eventually.js';
import { effect, subscriber, useStage } from '../support/stage.js';

const asked = 'test.work.asked';

/** A broker that carries nothing and is asked how far it is: what it says, and what happens meanwhile, is the test's. */
class Pretended {
  looks = 0;
  readonly forgotten: string[] = [];
  /** The first event that is not settled. */
  open: string | undefined;
  meanwhile: () => Promise<unknown> = async () => {};
  forget: (durable: string) => void = () => {};

  readonly factory: TransportFactory = {
    name: 'pretended',
    capabilities: { processes: 'many', firstDelivery: 'message' },
    create: () => ({
      name: 'pretended',
      capabilities: { processes: 'many', firstDelivery: 'message' },
      start: async () => {},
      forward: async () => ({ taken: 0, leftForTakers: 0, leftForOthers: 0 }),
      progress: async () => {
        this.looks++;
        const { open } = this;
        await this.meanwhile();
        return open ? { kind: 'open', eventId: open } : { kind: 'idle' };
      },
      forget: async (durable) => {
        this.forget(durable);
        this.forgotten.push(durable);
      },
      stop: async () => {},
      close: async () => {},
    }),
  };
}

describe('looks at what a broker has', () => {
  const stage = useStage();
  const boot = (broker: Pretended) =>
    stage.boot({
      manifest: { emits: [asked] },
      providers: [subscriber(asked, 'ledger', effect)],
      outbox: { schema: { onStart: 'migrate' }, relay: { reconcile: '100ms' }, transport: broker.factory },
    });
  const anotherLook = async (broker: Pretended) => {
    const before = broker.looks;
    await eventually('two more looks', () => broker.looks >= before + 2);
  };

  it('take nothing for lost that a relay, held up until then, gives to it during the look', async () => {
    const broker = new Pretended();
    const app = await boot(broker);
    const { id } = await app.publisher.publishNow(asked, {});
    // Longer in the queue than anything is under way.
    await eventually('it is old', () =>
      stage.database.value<boolean>(`SELECT due_at < now() - interval '1 second' FROM outbox.queue`),
    );
    // What the broker said a moment ago, that nothing waits there, does not hold any more.
    broker.meanwhile = async () => {
      if (broker.open) return;
      await stage.database.query('DELETE FROM outbox.queue');
      broker.open = id;
    };
    await anotherLook(broker);
    expect(broker.open).toBe(id);
    await anotherLook(broker);
    expect(app.log.matching(/the broker lost/)).toEqual([]);
    expect(await stage.database.query('SELECT event_id FROM outbox.deliveries')).toEqual([]);
    await app.close();
  });

  it('let the broker forget a durable that was retired before any look at it, until it has, and once', async () => {
    const broker = new Pretended();
    let refusals = 1;
    broker.forget = () => {
      if (refusals-- > 0) throw new Error('not now');
    };
    await stage.database.query(`INSERT INTO outbox.durables (name, state) VALUES ('gone', 'retired')`);
    const app = await boot(broker);
    await eventually('it is forgotten', () => broker.forgotten.length > 0);
    await anotherLook(broker);
    expect(broker.forgotten).toEqual(['gone']);

    const durables = app.app.get(Durables);
    await durables.revive('gone');
    await durables.retire('gone');
    await eventually('it is forgotten again', () => broker.forgotten.length > 1);
    await anotherLook(broker);
    expect(broker.forgotten).toEqual(['gone', 'gone']);
    await app.close();
  });
});
