import { defineCommand } from 'nestjs-outbox';
import { eventually } from '../support/eventually.js';
import { effect, subscriber, useStage } from '../support/stage.js';

const manifest = { emits: ['a.invoice.paid', 'a.invoice.voided'] };

describe('a former name that is used again', () => {
  const stage = useStage();

  it('by another durable of the same app: the app does not boot, as the two would share one number', async () => {
    const first = await stage.boot({ manifest, providers: [subscriber('a.invoice.paid', 'ledger', effect)] });
    await first.close();
    const booting = stage.boot({
      manifest,
      providers: [
        subscriber('a.invoice.paid', 'books', effect, { formerly: ['ledger'] }),
        subscriber('a.invoice.voided', 'ledger', effect),
      ],
    });
    await expect(booting).rejects.toThrow(/'books'.*was formerly 'ledger'.*claims that name/);
  });
});

describe('a rename that comes after the new name was registered', () => {
  const stage = useStage();

  it('does not boot: what waits for the former name would wait for ever', async () => {
    const old = await stage.boot({ manifest, providers: [subscriber('a.invoice.paid', 'accounting', effect)] });
    await old.close();
    const api = await stage.boot({ manifest, outbox: { role: 'publisher' } });
    await api.publisher.publishNow('a.invoice.paid', {});
    // The option was forgotten in the first deploy, and added in the next one.
    const forgot = await stage.boot({ manifest, providers: [subscriber('a.invoice.paid', 'books', effect)] });
    await forgot.close();
    const app = stage.boot({
      manifest,
      providers: [subscriber('a.invoice.paid', 'books', effect, { formerly: ['accounting'] })],
    });
    await expect(app).rejects.toThrow(/'books'.*cannot take over 'accounting'/);
  });

  it('nor do two former names at once', async () => {
    for (const name of ['one', 'two'])
      await (await stage.boot({ manifest, providers: [subscriber('a.invoice.paid', name, effect)] })).close();
    const booting = stage.boot({
      manifest,
      providers: [subscriber('a.invoice.paid', 'both', effect, { formerly: ['one', 'two'] })],
    });
    await expect(booting).rejects.toThrow(/'both'.*cannot take over 'one', 'two'/);
  });
});

describe('a command that was renamed before its worker first came', () => {
  const stage = useStage();

  it('is handled under its former name, too', async () => {
    const Old = defineCommand('a.mail.send');
    const New = defineCommand('a.letter.send', undefined, { formerly: ['a.mail.send'] });
    const api = await stage.boot({ manifest: { emits: [Old] }, outbox: { role: 'publisher' } });
    const relay = await stage.boot({ outbox: { role: 'worker' } });
    await api.publisher.publishNow(Old, {});
    await stage.settled();
    await relay.close();
    await stage.boot({ manifest: { accepts: [New] }, providers: [subscriber(New as never, 'letters', effect)] });
    await eventually('it is handled', () => stage.database.value<boolean>('SELECT count(*) = 1 FROM effects'));
  });
});
