import { effect, subscriber, useStage } from '../support/stage.js';

describe('a boot that fails after the gate', () => {
  // Afterwards the stage looks for sessions and locks that stayed behind.
  const stage = useStage();
  const providers = [subscriber('a.invoice.paid', 'ledger', effect)];
  const manifest = { emits: ['a.invoice.paid'] };

  it('leaves no connection and no lock', async () => {
    await (await stage.boot({ manifest })).close();
    await stage.database.query(
      `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'not today'; END $$`,
    );
    await stage.database.query(
      'CREATE TRIGGER refuse BEFORE INSERT ON outbox.durables FOR EACH ROW EXECUTE FUNCTION refuse()',
    );
    await expect(stage.boot({ manifest, providers })).rejects.toThrow('not today');
    expect(await stage.database.query('SELECT 1 FROM outbox.workers')).toEqual([]);
  });
});
