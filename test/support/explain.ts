/** A node of a plan, as EXPLAIN (FORMAT JSON) has it. */
export interface Plan {
  readonly 'Node Type': string;
  readonly 'Relation Name'?: string;
  readonly 'Actual Rows'?: number;
  readonly 'Actual Loops'?: number;
  readonly 'Shared Hit Blocks'?: number;
  readonly 'Shared Read Blocks'?: number;
  readonly Plans?: readonly Plan[];
}

/** What has a connection of the library's own to send statements. */
interface Connection {
  run(bound: Explained): Promise<readonly [{ readonly rows: readonly unknown[] }]>;
}
interface Explained {
  readonly name: string;
  readonly text: string;
  readonly values: readonly (string | null)[];
}

/** The nodes of a statement's plan, the topmost first, after running it as the library does. */
export async function explain(connection: Connection, { name, text, values }: Explained): Promise<Plan[]> {
  const [{ rows }] = await connection.run({
    name: `explain_${name}`.slice(0, 60),
    text: `EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) ${text}`,
    values,
  });
  const [row] = rows as readonly { 'QUERY PLAN': [{ Plan: Plan }] }[];
  return nodesOf(row?.['QUERY PLAN'][0].Plan as Plan);
}

function nodesOf(plan: Plan): Plan[] {
  return [plan, ...(plan.Plans ?? []).flatMap(nodesOf)];
}

/** Nodes that read one of `tables` (or a partition of it) otherwise than by an index or by the place of a row. */
export function wholeReads(nodes: readonly Plan[], tables: readonly string[]): Plan[] {
  return nodes.filter(({ 'Relation Name': relation = '', 'Node Type': type }) => {
    const grown = tables.some((table) => relation === table || /^_\d$/.test(relation.replace(table, '')));
    return grown && !/^(Index|Tid|ModifyTable)/.test(type);
  });
}

/** Pages of 8 KiB that the whole statement touched. */
export function pagesOf([top]: readonly Plan[]): number {
  return (top?.['Shared Hit Blocks'] ?? 0) + (top?.['Shared Read Blocks'] ?? 0);
}
