import { Controller, Injectable, Module } from '@nestjs/common';
import { type JobContext, PeriodicJob, type TenantJobContext } from 'nestjs-outbox';
import { eventually } from '../support/eventually.js';
import { useStage } from '../support/stage.js';

const often = { every: '100ms' } as const;

/** What ran, as `method of job`. */
const ran = new Set<string>();
const note = (by: string, { job }: { job: string }): void => void ran.add(`${by} of ${job}`);

abstract class Base {
  readonly mine = 'this is bound';

  @PeriodicJob(often)
  inherited(ctx: JobContext): void {
    note(`Base.inherited, ${this.mine}`, ctx);
  }

  @PeriodicJob(often)
  overridden(ctx: JobContext): void {
    note('Base.overridden', ctx);
  }

  @PeriodicJob({ every: '90d' }, { name: 'test.never' })
  saidAnew(ctx: JobContext): void {
    note('Base.saidAnew', ctx);
  }

  get explodes(): never {
    throw new Error('a getter ran during the scan');
  }
}

@Injectable()
class One extends Base {
  // Without saying it again: the job stands, and this is what runs.
  override overridden(ctx: JobContext): void {
    note('One.overridden', ctx);
  }

  // Saying it again: this is the job, and the parent's is not.
  @PeriodicJob(often, { name: 'test.said-anew' })
  override saidAnew(ctx: JobContext): void {
    note('One.saidAnew', ctx);
  }
}

/** A second child of the same parent: the default names tell them apart. */
@Injectable()
class Two extends Base {
  @PeriodicJob(often, { name: 'test.said-anew-too' })
  override saidAnew(ctx: JobContext): void {
    note('Two.saidAnew', ctx);
  }
}

@Injectable()
class Twice {
  @PeriodicJob(often, { name: 'test.first' })
  @PeriodicJob(often, { name: 'test.second' })
  run(ctx: JobContext): void {
    note('Twice.run', ctx);
  }
}

/** A decorator that replaces the method and copies nothing, as many do. */
function Wrapped(name: string) {
  return (target: object, key: string, descriptor: PropertyDescriptor): void => {
    const original = descriptor.value as (ctx: JobContext) => unknown;
    const value = function (this: unknown, ctx: JobContext): unknown {
      note(name, ctx);
      return original.call(this, ctx);
    };
    Object.defineProperty(target, key, { ...descriptor, value });
    descriptor.value = value;
  };
}

@Injectable()
class Decorated {
  @Wrapped('wrapper above')
  @PeriodicJob(often)
  above(ctx: JobContext): void {
    note('Decorated.above', ctx);
  }

  @PeriodicJob(often)
  @Wrapped('wrapper below')
  below(ctx: JobContext): void {
    note('Decorated.below', ctx);
  }
}

@Controller()
class Web {
  @PeriodicJob(often)
  run(ctx: JobContext): void {
    note('Web.run', ctx);
  }
}

function plain(name: string) {
  class Plain {
    @PeriodicJob(often, { name })
    run(ctx: JobContext): void {
      note('Plain.run', ctx);
    }
  }
  return Plain;
}

class Tenants {
  @PeriodicJob(often, { perTenant: {} })
  run(ctx: TenantJobContext): void {
    note(`Tenants.run for ${ctx.tenantId}`, ctx);
  }
}

describe('jobs are found on any provider or controller, however it was provided', () => {
  const stage = useStage();

  it('class, factory, value, alias, controller, inherited, decorated above and below, in a module imported twice', async () => {
    const [Factory, Value, Aliased, Shared] = ['factory', 'value', 'aliased', 'shared'].map((n) => plain(`test.${n}`));
    if (!Factory || !Value || !Aliased || !Shared) throw new Error('there are four');
    @Module({ providers: [Shared], exports: [Shared] })
    class SharedModule {}
    @Module({ imports: [SharedModule] })
    class Left {}
    @Module({ imports: [SharedModule] })
    class Right {}
    const expected = [
      'Base.inherited, this is bound of One.inherited',
      'Base.inherited, this is bound of Two.inherited',
      'One.overridden of One.overridden',
      'Base.overridden of Two.overridden',
      'One.saidAnew of test.said-anew',
      'Two.saidAnew of test.said-anew-too',
      'Twice.run of test.first',
      'Twice.run of test.second',
      'wrapper above of Decorated.above',
      'Decorated.above of Decorated.above',
      'wrapper below of Decorated.below',
      'Decorated.below of Decorated.below',
      'Web.run of Web.run',
      ...['factory', 'value', 'aliased', 'shared'].map((n) => `Plain.run of test.${n}`),
      'Tenants.run for a of Tenants.run',
    ].toSorted();
    await stage.boot({
      outbox: { tenancy: { list: async () => ['a'] } },
      controllers: [Web],
      imports: [Left, Right],
      providers: [
        One,
        Two,
        Twice,
        Decorated,
        Tenants,
        { provide: 'factory', useFactory: () => new Factory() },
        { provide: 'value', useValue: new Value() },
        Aliased,
        { provide: 'alias', useExisting: Aliased },
        { provide: 'alias-again', useExisting: 'alias' },
        { provide: 'plain', useValue: { ran } },
        { provide: 'nothing', useValue: null },
      ],
    });
    await eventually('all that is expected, and nothing else', () => {
      expect([...ran].toSorted()).toEqual(expected);
      return true;
    });
    const names = await stage.database.query<{ job: string }>(
      "SELECT job FROM outbox.job_state WHERE job <> 'outbox.purge'",
    );
    expect(names.map(({ job }) => job).toSorted()).toEqual(
      [...new Set(expected.map((text) => text.split(' of ').at(-1)))].toSorted(),
    );
  });
});

describe('@PeriodicJob', () => {
  it('refuses what could never be found: a static method, and one named by a symbol', () => {
    const name = Symbol('run');
    const apply = PeriodicJob(often) as (target: object, method: string | symbol, descriptor: object) => void;
    class Job {
      static run(): void {}
      [name](): void {}
    }
    expect(() => apply(Job, 'run', {})).toThrow('@PeriodicJob on run: it belongs on a method of an instance');
    expect(() => apply(Job.prototype, name, {})).toThrow('neither static nor named by a symbol');
    expect(Object.getOwnPropertySymbols(Function)).toEqual([]);
  });
});
