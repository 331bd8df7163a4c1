import Table from 'cli-table3';
import type { Line } from './figures.js';
import type { Machine } from './machine.js';

/** The figures for people: one line each, ratio first. */
export function tableOf(machine: Machine, lines: readonly Line[]): string {
  const table = new Table({
    head: ['what', 'ratio', 'ours', 'plain', 'TypeORM alone', 'over postgres()', 'unit', 'better'],
    colAligns: ['left', 'right', 'right', 'right', 'right', 'right', 'left', 'left'],
    style: { head: [], border: [], compact: true },
  });
  for (const { what, ratio, ours, plain, typeorm, postgres, unit, better } of lines)
    table.push([what, ratio.toFixed(2), figure(ours), figure(plain), figure(typeorm), figure(postgres), unit, better]);
  return `${headline(machine)}\n${table.toString()}`;
}

function headline(machine: Machine): string {
  const { date, cores, processor, node, postgres, server, fsync } = machine;
  return `${date} · ${cores} cores (${processor}), shared by client and server · Node ${node} · Postgres ${postgres} (${server}, fsync ${fsync})`;
}

function figure(value: number | undefined): string {
  if (value === undefined) return '';
  return value >= 100 ? Math.round(value).toLocaleString('en') : value.toFixed(2);
}
