import { setTimeout as pause } from 'node:timers/promises';
import type { DemoArguments } from './arguments.js';
import { Feeder } from './feeder.js';
import { publishInput, readInput } from './input-file.js';
import { Screen } from './screen.js';
import { openShow, type Show } from './show.js';
import { Summary } from './summary.js';

const trickleMs = 200;
const redrawMs = 1_000;

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
    for (const line of greeting(await show.app.getUrl())) screen.note(line);
    const publishing = lines ? publishInput(show.app, options.input ?? '', lines) : trickle(show, signal);
    await Promise.race([Promise.all([publishing, redraw(summary, screen, signal)]), show.failed]);
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

async function redraw(summary: Summary, screen: Screen, signal: AbortSignal): Promise<void> {
  while (!signal.aborted) {
    screen.draw(await summary.lines());
    await unlessStopped(redrawMs, signal);
  }
}

async function unlessStopped(ms: number, signal: AbortSignal): Promise<void> {
  await pause(ms, undefined, { signal }).catch(() => {});
}

function greeting(url: string): string[] {
  const json = `-H 'content-type: application/json' -H 'x-tenant: acme'`;
  return [
    `listening on ${url}; Ctrl-C stops. Try:`,
    `  curl -X POST ${url}/invoices ${json} -d '{"cents": 4200, "email": "you@example.test"}'`,
    `  curl -X POST ${url}/invoices/ID/pay -H 'x-tenant: acme'`,
    '',
  ];
}
