import { once } from 'node:events';
import { Desk } from './desk.js';
import { orderBooked, orderPlaced, tickJob } from './events.js';
import { cancelling } from './operator/cancelling.js';
import { looking, waiting } from './operator/looking.js';
import { mending } from './operator/mending.js';
import { pausing, resumeAll } from './operator/pausing.js';
import { report, type SoakTask } from './reports.js';

/** Acts and looks, several hands at once, until it is told to stop; then resumes all and says what it did. */
export async function operate(task: SoakTask): Promise<void> {
  let stop = false;
  void once(process, 'message').then(() => {
    stop = true;
  });
  const desk = await Desk.open(task);
  const stopped = () => stop;
  await report({ kind: 'ready' });
  const { witness } = desk;
  await Promise.all([
    desk.lane('pause', 200, stopped, pausing(desk, 1, [{ durable: 'ledger' }, { durable: 'mail' }, { job: tickJob }])),
    desk.lane(
      'pause',
      200,
      stopped,
      pausing(desk, 2, [
        { type: orderPlaced },
        { type: 'soak.order.*' },
        { type: orderBooked },
        { tenantId: 'acme' },
        { tenantId: 'globex' },
      ]),
    ),
    desk.lane('cancel', 60, stopped, cancelling(desk, 3)),
    desk.lane('cancel', 150, stopped, cancelling(desk, 4)),
    desk.lane('mend', 100, stopped, mending(desk, 5)),
    desk.lane('look', 50, stopped, looking(desk, 6)),
    desk.lane('look', 50, stopped, looking(desk, 7)),
    desk.lane('wait', 50, stopped, waiting(desk, 8)),
    // An operator's connection ends in the middle of whatever it does.
    desk.lane('end sessions', 3_000, stopped, async () => void (await witness.rows(endSql))),
  ]);
  await resumeAll(desk);
  const { answered, paused, aborted, reads, waits, unanswered, surprises } = desk;
  await report({ kind: 'operated', shift: { answered, paused, aborted, reads, waits, unanswered, surprises } });
  await desk.close();
  process.exit();
}

const endSql = `
SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'soak operator' ORDER BY state <> 'active', random() LIMIT 1`;
