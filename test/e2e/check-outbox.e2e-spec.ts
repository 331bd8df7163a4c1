import { Injectable, Logger, Module, Scope, type Type } from '@nestjs/common';
import { TypeOrmModule } from '@nestjs/typeorm';
import { memory, OutboxModule, type OutboxRootOptions, Subscribe } from 'nestjs-outbox';
import { checkOutbox } from 'nestjs-outbox/testing';

const event = 'billing.invoice.paid';
let made = 0;

/** Nobody listens there: whatever connects fails. */
const nowhere = TypeOrmModule.forRoot({
  type: 'postgres',
  url: 'postgres://nobody@127.0.0.1:1/nothing',
  retryAttempts: 0,
});

@Injectable()
class Ledger {
  constructor() {
    made += 1;
  }

  @Subscribe(event, 'ledger')
  post(): void {}
}

@Injectable({ scope: Scope.REQUEST })
class PerRequest {
  @Subscribe(event, 'per-request')
  post(): void {}
}

@Injectable()
class Misspelt {
  @Subscribe('billing.invoice.payed', 'mail')
  send(): void {}
}

function app(providers: Type[], options: OutboxRootOptions = {}, more: Type[] = []): Type {
  @Module({
    imports: [nowhere, OutboxModule.forRoot(options), OutboxModule.forFeature({ emits: [event] }), ...more],
    providers,
  })
  class AppModule {}
  return AppModule;
}

describe('checkOutbox', () => {
  it('finds nothing wrong with a good app, makes no instance, connects nowhere, leaves nothing', async () => {
    const before = process
      .getActiveResourcesInfo()
      .filter((what) => what !== 'Timeout')
      .sort();
    expect(await checkOutbox(app([Ledger]))).toEqual([]);
    expect(made).toBe(0);
    expect(
      process
        .getActiveResourcesInfo()
        .filter((what) => what !== 'Timeout')
        .sort(),
    ).toEqual(before);
  });

  it('takes a dynamic module', async () => {
    expect(await checkOutbox({ module: class Root {}, imports: [app([Ledger])] })).toEqual([]);
  });

  it('reports everything that the graph shows, like the gate', async () => {
    @Module({ providers: [Ledger] })
    class Other {}
    const options = { transport: memory(), role: 'worker', drian: '5s' } as OutboxRootOptions;
    const found = await checkOutbox(app([Ledger, PerRequest, Misspelt], options, [Other]));
    const says = [
      ['options', /unknown option 'drian' — did you mean 'drain'/],
      ['transport', /memory\(\) is for exactly one process.*role is 'worker'/],
      ['providers', /Ledger has subscriptions and is provided twice, in .*Other/],
      ['scope', /PerRequest\.post/],
      ['catalog', /Misspelt\.send .*did you mean 'billing\.invoice\.paid'/],
    ] as const;
    for (const [check, message] of says)
      expect(found).toContainEqual({ check, message: expect.stringMatching(message) });
    expect(found).toHaveLength(says.length);
  });

  it('reports a second forRoot, and none', async () => {
    @Module({ imports: [OutboxModule.forRoot()] })
    class Second {}
    expect(await checkOutbox(app([], {}, [Second]))).toEqual([
      { check: 'forRoot', message: expect.stringMatching(/imported 2 times/) },
    ]);
    @Module({})
    class Nothing {}
    expect(await checkOutbox(Nothing)).toEqual([
      { check: 'forRoot', message: expect.stringMatching(/no module of this app imports OutboxModule\.forRoot/) },
    ]);
  });

  it('reports a graph that Nest cannot build', async () => {
    @Injectable()
    class Lonely {
      constructor(readonly ledger: Ledger) {}
    }
    const written = jest.spyOn(process.stdout, 'write');
    const found = await checkOutbox(app([Lonely]));
    expect(written.mock.calls.map(String).filter((text) => text.includes('Nest'))).toEqual([]);
    written.mockRestore();
    expect(found).toEqual([
      { check: 'graph', message: expect.stringMatching(/Nest cannot build the application: .*Lonely/s) },
    ]);
  });

  it('cannot see options from a factory: the defaults stand in, and the factory is not run', async () => {
    let asked = 0;
    @Module({
      imports: [
        nowhere,
        OutboxModule.forRootAsync({
          useFactory: () => {
            asked += 1;
            return { drian: '5s' } as OutboxRootOptions;
          },
        }),
        OutboxModule.forFeature({ emits: [event] }),
      ],
      providers: [Misspelt],
    })
    class AppModule {}
    expect((await checkOutbox(AppModule)).map(({ check }) => check)).toEqual(['catalog']);
    expect(asked).toBe(0);
  });

  it('puts the logger back, also when several run at once', async () => {
    const lines: unknown[] = [];
    const keep = (message: unknown) => lines.push(message);
    Logger.overrideLogger({ log: keep, warn: keep, error: keep });
    await Promise.all([checkOutbox(app([Ledger])), checkOutbox(app([Misspelt])), checkOutbox(app([Ledger]))]);
    expect(lines).toEqual([]);
    Logger.log('heard');
    expect(lines).toEqual(['heard']);
  });
});
