import { Controller, Inject, Injectable, Module, Scope } from '@nestjs/common';
import { type DeliveryContext, defineEvent, type OutboxEvent, Subscribe } from 'nestjs-outbox';
import { eventually } from '../support/eventually.js';
import { subscriber, useStage } from '../support/stage.js';

const types = ['a.invoice.paid', 'a.invoice.voided', 'a.contact.merged', 'b.invoice.paid', 'a.inv_ice.paid'];

describe('a durable may cover several types, or a pattern', () => {
  const stage = useStage();

  it.each([
    ['one type', 'a.invoice.paid', ['a.invoice.paid']],
    ['several types', ['a.invoice.paid', 'a.contact.merged'], ['a.contact.merged', 'a.invoice.paid']],
    ['all of a module', 'a.*.*', ['a.contact.merged', 'a.inv_ice.paid', 'a.invoice.paid', 'a.invoice.voided']],
    ['a verb everywhere', '*.*.paid', ['a.inv_ice.paid', 'a.invoice.paid', 'b.invoice.paid']],
    ['the token in the middle', 'a.*.paid', ['a.inv_ice.paid', 'a.invoice.paid']],
    ['a name whose underscore is no wildcard', 'a.inv_ice.paid', ['a.inv_ice.paid']],
    ['a pattern and a type that meet', ['a.*.paid', 'a.invoice.paid'], ['a.inv_ice.paid', 'a.invoice.paid']],
    ['everything', '*.*.*', types.toSorted()],
  ])('%s', async (name, events, expected) => {
    const durable = name.replaceAll(/[^a-z]+/g, '-');
    const seen: string[] = [];
    const app = await stage.boot({
      manifest: { emits: types },
      providers: [subscriber(events as string, durable, (event) => void seen.push(event.type))],
    });
    await app.dataSource.transaction(() => app.publisher.publishMany(types.map((event) => ({ event, payload: {} }))));
    await eventually('all that is meant', () => seen.length >= expected.length);
    await stage.drained(durable);
    await app.close();
    expect(seen.toSorted()).toEqual(expected);
  });
});

abstract class Base {
  protected readonly seen: string[] = [];

  constructor(readonly tag: string) {}

  @Subscribe('a.invoice.paid', 'inherited')
  async post(event: OutboxEvent): Promise<void> {
    this.seen.push(`base ${event.type}`);
  }

  get explodes(): never {
    throw new Error('a getter ran during the scan');
  }
}

@Injectable()
class Derived extends Base {
  constructor() {
    super('derived');
  }

  // Overridden without saying it again: the subscription stands, and this is what runs.
  override async post(event: OutboxEvent): Promise<void> {
    this.seen.push(`derived ${event.type}`);
  }

  all(): string[] {
    return this.seen;
  }
}

function named(durable: string, seen: string[]) {
  class Named {
    @Subscribe('a.invoice.paid', durable)
    async post(): Promise<void> {
      seen.push(durable);
    }
  }
  return Named;
}

/** A decorator that replaces the method and copies nothing, as many do. */
function Wrapped(seen: string[], name: string) {
  return (target: object, key: string, descriptor: PropertyDescriptor): void => {
    const original = descriptor.value as (...args: unknown[]) => unknown;
    const value = function (this: unknown, ...args: unknown[]): unknown {
      seen.push(name);
      return original.apply(this, args);
    };
    Object.defineProperty(target, key, { ...descriptor, value });
    descriptor.value = value;
  };
}

describe('handlers are found on any provider or controller, however it was provided', () => {
  const stage = useStage();

  it('class, factory, value, alias, controller, inherited, decorated above and below; each once', async () => {
    const seen: string[] = [];
    const [Factory, Value, Aliased] = [named('by-factory', seen), named('by-value', seen), named('aliased', seen)];
    class Decorated {
      @Wrapped(seen, 'above')
      @Subscribe('a.invoice.paid', 'decorated-above')
      async above(): Promise<void> {}

      @Subscribe('a.invoice.paid', 'decorated-below')
      @Wrapped(seen, 'below')
      async below(): Promise<void> {}
    }
    @Controller()
    class Web {
      @Subscribe('a.invoice.paid', 'controller')
      async post(): Promise<void> {
        seen.push('controller');
      }
    }
    const app = await stage.boot({
      manifest: { emits: ['a.invoice.paid'] },
      controllers: [Web],
      providers: [
        Derived,
        Decorated,
        { provide: 'factory', useFactory: () => new Factory() },
        { provide: 'value', useValue: new Value() },
        Aliased,
        { provide: 'alias', useExisting: Aliased },
        { provide: 'alias-again', useExisting: 'alias' },
        { provide: 'plain', useValue: { seen } },
        { provide: 'nothing', useValue: null },
      ],
    });
    await app.publisher.publishNow('a.invoice.paid', {});
    await stage.drained();
    expect(seen.toSorted()).toEqual(['above', 'aliased', 'below', 'by-factory', 'by-value', 'controller']);
    expect(app.app.get(Derived).all()).toEqual(['derived a.invoice.paid']);
  });

  it('also in modules that are imported twice', async () => {
    const seen: string[] = [];
    const Shared = named('shared-module', seen);
    @Module({ providers: [Shared], exports: [Shared] })
    class SharedModule {}
    @Module({ imports: [SharedModule] })
    class One {}
    @Module({ imports: [SharedModule] })
    class Two {}
    const app = await stage.boot({ manifest: { emits: ['a.invoice.paid'] }, imports: [One, Two] });
    await app.publisher.publishNow('a.invoice.paid', {});
    await eventually('it is handled', () => seen.length > 0);
    await stage.drained('shared-module');
    expect(seen).toEqual(['shared-module']);
  });

  it.each([
    ['request-scoped', Scope.REQUEST],
    ['transient', Scope.TRANSIENT],
  ])('a %s provider is refused at boot, and the message says why', async (_, scope) => {
    @Injectable({ scope })
    class Scoped {
      @Subscribe('a.invoice.paid', 'scoped')
      async post(): Promise<void> {}
    }
    await expect(stage.boot({ manifest: { emits: ['a.invoice.paid'] }, providers: [Scoped] })).rejects.toThrow(
      /Scoped\.post \(durable 'scoped'\).*no request is there.*singletons/s,
    );
  });

  it('and so is one that only injects something request-scoped', async () => {
    @Injectable({ scope: Scope.REQUEST })
    class Request {}
    @Injectable()
    class Bubbled {
      constructor(@Inject(Request) readonly request: Request) {}

      @Subscribe('a.invoice.paid', 'bubbled')
      async post(): Promise<void> {}
    }
    await expect(
      stage.boot({ manifest: { emits: ['a.invoice.paid'] }, providers: [Request, Bubbled] }),
    ).rejects.toThrow(/Bubbled\.post/);
  });
});

describe('a rename loses and replays nothing', () => {
  const stage = useStage();
  const tally = (seen: string[]) => (event: OutboxEvent, context: DeliveryContext) =>
    void seen.push(`${event.type} ${(event.payload as { n: number }).n} ${context.durable}`);

  it('of a durable: what waited, what failed and what was done stay its own, also beside an older pod', async () => {
    const manifest = { emits: ['a.invoice.paid'] };
    const before: string[] = [];
    const old = await stage.boot({ manifest, providers: [subscriber('a.invoice.paid', 'accounting', tally(before))] });
    await old.publisher.publishNow('a.invoice.paid', { n: 1 });
    await eventually('the first is handled', () => before.length === 1);
    await old.close();
    const api = await stage.boot({ manifest, outbox: { role: 'publisher' } });
    await api.publisher.publishNow('a.invoice.paid', { n: 2 });
    const after: string[] = [];
    const renamed = await stage.boot({
      manifest,
      providers: [subscriber('a.invoice.paid', 'ledger', tally(after), { formerly: ['accounting'] })],
    });
    await eventually('the second is handled', () => after.length === 1);
    expect(after).toEqual(['a.invoice.paid 2 ledger']);
    // An older pod boots after the rename: it gets the same durable, not a second one.
    const late: string[] = [];
    const older = await stage.boot({ manifest, providers: [subscriber('a.invoice.paid', 'accounting', tally(late))] });
    for (let n = 3; n < 23; n++) await api.publisher.publishNow('a.invoice.paid', { n });
    await eventually('each is handled by one of the two', () => after.length + late.length === 21);
    await stage.drained();
    expect(after.length + late.length).toBe(21);
    expect(await stage.database.query('SELECT name, formerly FROM outbox.durables')).toEqual([
      { name: 'ledger', formerly: ['accounting'] },
    ]);
    await Promise.all([renamed, older, api].map((app) => app.close()));
  });

  it('of a type: both names are handled, and what was published under the new one before the worker knew it, too', async () => {
    const Settled = defineEvent('b.invoice.settled');
    const Closed = defineEvent('b.invoice.closed', undefined, { formerly: ['b.invoice.settled'] });
    const seen: string[] = [];
    const old = await stage.boot({
      manifest: { emits: [Settled] },
      providers: [subscriber(Settled.type, 'closing', tally(seen))],
    });
    await old.publisher.publishNow(Settled, { n: 1 });
    await eventually('the first is handled', () => seen.length === 1);
    // The new API is deployed before the new worker: the old one forwards what it does not know to nobody.
    const api = await stage.boot({ manifest: { emits: [Closed] }, outbox: { role: 'publisher' } });
    await api.publisher.publishNow(Closed, { n: 2 });
    await stage.settled();
    await old.close();
    await stage.boot({
      manifest: { accepts: [Closed] },
      providers: [subscriber(Closed as never, 'closing', tally(seen))],
    });
    await eventually('the second is handled', () => seen.length === 2);
    await api.publisher.publishNow(Settled.type, { n: 3 });
    await api.publisher.publishNow(Closed, { n: 4 });
    await eventually('both names', () => seen.length === 4);
    await stage.drained();
    expect(seen.toSorted()).toEqual([
      'b.invoice.closed 2 closing',
      'b.invoice.closed 4 closing',
      'b.invoice.settled 1 closing',
      'b.invoice.settled 3 closing',
    ]);
  });
});

describe('what a handler publishes', () => {
  const stage = useStage();

  it('belongs to its event’s tenant, also beside its transaction, whatever the app says of the current one', async () => {
    const seen: Record<string, string | null> = {};
    const note = (event: OutboxEvent) => {
      seen[event.type] = event.tenantId;
    };
    let publish: (() => Promise<unknown>) | undefined;
    const app = await stage.boot({
      manifest: { emits: ['a.first.sent', 'a.inside.sent', 'a.beside.sent'] },
      outbox: { tenancy: { current: () => 'of-the-app' } },
      providers: [
        subscriber('a.first.sent', 'first', () => publish?.()),
        subscriber('a.inside.sent', 'inside', note),
        subscriber('a.beside.sent', 'beside', note),
      ],
    });
    publish = async () => {
      await app.publisher.publish('a.inside.sent', {});
      await app.publisher.publishNow('a.beside.sent', {});
    };
    await app.publisher.publishNow('a.first.sent', {}, { tenantId: 'acme' });
    await eventually('both', () => Object.keys(seen).length === 2);
    expect(seen).toEqual({ 'a.inside.sent': 'acme', 'a.beside.sent': 'acme' });
    await app.close();
  });
});
