/** What the command line ends with. Scripts rely on them: a released code never changes its meaning. */
export const exit = {
  done: 0,
  problem: 1,
  usage: 2,
  unreachable: 3,
  schema: 4,
  forbidden: 5,
  incomplete: 6,
  unexpected: 7,
} as const;

export type ExitCode = (typeof exit)[keyof typeof exit];

const meanings: Readonly<Record<keyof typeof exit, string>> = {
  done: 'done; of health: green, or yellow without --strict',
  problem: 'a problem was found, nothing matched, or nothing had to be changed',
  usage: 'wrong usage: a command, an option, or a confirmation that is missing',
  unreachable: 'no database: none was named, it does not answer, or it refuses the login',
  schema: 'the outbox schema is missing, too old, or too new for this version',
  forbidden: 'the database role lacks a privilege',
  incomplete: 'nest-commander is not installed',
  unexpected: 'an error that nobody foresaw',
};

/** The table at the end of `--help`. */
export function exitHelp(): string {
  const lines = Object.entries(exit).map(([name, code]) => `  ${code}  ${meanings[name as keyof typeof exit]}`);
  return `\nExit codes:\n${lines.join('\n')}\n`;
}
