import { eventually } from '../../support/eventually.js';
import { FaultSite } from './fault-site.js';

/**
 * No test can pull a cable. What is seen here is what the server will do about it: how soon its own probes begin, of
 * what there are no others. A client's probes tell the client that the server is gone, and nobody that the client is.
 */
const recording = `
  CREATE TABLE probes (purpose text, idle int, apart int, lost int, tcp boolean);
  GRANT ALL ON probes TO PUBLIC;
  CREATE FUNCTION record_probes() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO probes VALUES (current_setting('application_name'), current_setting('tcp_keepalives_idle')::int,
      current_setting('tcp_keepalives_interval')::int, current_setting('tcp_keepalives_count')::int, inet_server_addr() IS NOT NULL);
    RETURN NULL;
  END $$;
  CREATE TRIGGER record_probes AFTER INSERT ON outbox.workers FOR EACH ROW EXECUTE FUNCTION record_probes();
  CREATE TRIGGER record_probes AFTER INSERT ON outbox.deliveries FOR EACH ROW EXECUTE FUNCTION record_probes()`;

describe('a machine that vanishes without closing its sockets', () => {
  let site: FaultSite;

  beforeEach(async () => {
    site = await FaultSite.open();
  });

  afterEach(() => site?.close());

  it('is noticed by the server within half a minute: the sessions that hold its number and lease its rows are probed', async () => {
    await site.database.query(recording);
    await site.worker();
    await site.handledOnce([await site.askOne({})]);
    const seen = await eventually('both were recorded', async () => {
      const rows = await site.database.query<{
        purpose: string;
        idle: number;
        apart: number;
        lost: number;
        tcp: boolean;
      }>(`SELECT DISTINCT * FROM probes WHERE purpose LIKE 'nestjs-outbox %' ORDER BY purpose`);
      return rows.length === 2 ? rows : undefined;
    });
    expect(seen.map(({ purpose }) => purpose)).toEqual(['nestjs-outbox relay', 'nestjs-outbox worker lock']);
    // Over a local socket there is no machine that could vanish, and the settings read as zero.
    for (const { idle, apart, lost } of seen.filter(({ tcp }) => tcp)) {
      expect(idle).toBeGreaterThan(0);
      expect(idle + apart * lost).toBeLessThanOrEqual(30);
    }
  });
});
