import { setTimeout as pause } from 'node:timers/promises';
import type { DemoArguments } from './arguments.js';
import { Feeder } from './feeder.js';
import { publishInput, readInput } from './input-file.js';
import { Screen } from './screen.js';
import { openShow, type Show } from './show.js';
import { Summary } from './summary.js';

const trickleMs = 200;
const redrawMs = 1_000;
const restartBrokerMs = 20_000;

/** Stays up until it is told to stop: a trickle of invoices (or the file, once), the live summary, HTTP. */
export async function runLive(main: string, options: DemoArguments, signal: AbortSignal): Promise<void> {
  const lines = options.input === undefined ? undefined : await readInput(options.input);
  const screen = new Screen();
  screen.note('starting ...');
  const show = await openShow(main, options, (line) => screen.note(line), signal);
  const summary = new Summary(show.stage.adminUrl);
  try {
    await summary.open();
    await show.app.listen(Number(process.env['PORT'] ?? 0), '127.0.0.1');
    for (const line of greeting(await show.app.getUrl(), show)) screen.note(line);
    const publishing = lines ? publishInput(show.app, options.input ?? '', lines) : trickle(show, signal);
    const going = [publishing, redraw(summary, screen, show, signal), ...(options.kill ? [disturb(show, signal)] : [])];
    await Promise.race([Promise.all(going), show.failed]);
    screen.note('stopping ...');
  } finally {
    await summary.close();
    await show.close();
  }
}

async function trickle(show: Show, signal: AbortSignal): Promise<void> {
  const feeder = new Feeder(show.app);
  for (let n = 0; !signal.aborted; n++) {
    await feeder.feed(n);
    await unlessStopped(trickleMs, signal);
  }
}

/** The workers have somebody to kill them. */
async function disturb({ stage: { broker } }: Show, signal: AbortSignal): Promise<void> {
  while (broker && !signal.aborted) {
    await unlessStopped(restartBrokerMs, signal);
    if (!signal.aborted) await broker.restart();
  }
}

async function redraw(summary: Summary, screen: Screen, show: Show, signal: AbortSignal): Promise<void> {
  const { broker } = show.stage;
  while (!signal.aborted) {
    const carrier = broker
      ? [`first deliveries by nats-server ${broker.version}, restarted ${broker.restarts} times`]
      : [];
    screen.draw([...carrier, ...(await summary.lines())]);
    await unlessStopped(redrawMs, signal);
  }
}

async function unlessStopped(ms: number, signal: AbortSignal): Promise<void> {
  await pause(ms, undefined, { signal }).catch(() => {});
}

function greeting(url: string, { stage: { broker } }: Show): string[] {
  const json = `-H 'content-type: application/json' -H 'x-tenant: acme'`;
  return [
    `listening on ${url}; Ctrl-C stops. Try:`,
    `  curl -X POST ${url}/invoices ${json} -d '{"cents": 4200, "email": "you@example.test"}'`,
    `  curl -X POST ${url}/invoices/ID/pay -H 'x-tenant: acme'`,
    ...(broker ? [`  nats --server ${broker.url} subscribe 'outbox.>'`] : []),
    '',
  ];
}
