import { dirname, resolve } from 'node:path';
import { lilconfig } from 'lilconfig';
import { didYouMean } from '../core/nearest.js';
import { schemaNameProblem } from '../tables/schema/schema-name.js';
import { CliError, wrongUsage } from './cli-error.js';
import { exit } from './exit-codes.js';
import type { CommonOptions } from './options.js';

/** What a config file may say. */
export interface CliConfig {
  /** The database. */
  readonly url?: string;
  readonly schema?: string;
  /** The compiled root module, for `check`: a path from the config file on, and `#Name` of its export. */
  readonly module?: string;
}

export interface Target {
  readonly url: string | undefined;
  readonly schema: string | undefined;
  readonly module: string | undefined;
}

const name = 'nestjs-outbox';
const keys: readonly string[] = ['url', 'schema', 'module'];

/** Which database is meant: the options first, then DATABASE_URL, then the config file. */
export async function targetOf(options: CommonOptions, env = process.env, cwd = process.cwd()): Promise<Target> {
  const config = await configOf(options.config, cwd);
  const schema = options.schema ?? config.schema;
  const problem = schema === undefined ? undefined : schemaNameProblem(schema);
  if (problem) throw wrongUsage(problem);
  return { url: options.url ?? (env['DATABASE_URL'] || config.url), schema, module: config.module };
}

export function urlOf({ url }: Target): string {
  if (url === undefined)
    throw new CliError(
      exit.unreachable,
      `no database was named: set DATABASE_URL, give --url postgres://user:password@host/database, or put url into ${name}.config.json`,
    );
  if (!/^postgres(ql)?:\/\//.test(url))
    throw wrongUsage('the database URL does not begin with postgres:// (or postgresql://)');
  return url;
}

async function configOf(file: string | undefined, cwd: string): Promise<CliConfig> {
  const search = lilconfig(name, {
    searchPlaces: ['package.json', ...['json', 'js', 'mjs', 'cjs'].map((ext) => `${name}.config.${ext}`)],
  });
  try {
    const found = await (file === undefined ? search.search(cwd) : search.load(resolve(cwd, file)));
    if (!found || found.isEmpty) return {};
    const { module, ...config } = checked(found.config, found.filepath);
    return module === undefined ? config : { ...config, module: resolve(dirname(found.filepath), module) };
  } catch (error) {
    if (error instanceof CliError) throw error;
    throw wrongUsage(`the config file ${file ?? ''} cannot be read: ${(error as Error).message}`);
  }
}

function checked(config: unknown, file: string): CliConfig {
  if (typeof config !== 'object' || config === null) throw wrongUsage(`${file} does not hold an object`);
  for (const [key, value] of Object.entries(config)) {
    if (!keys.includes(key))
      throw wrongUsage(`${file} knows no '${key}'${didYouMean(key, keys) || '.'} It takes ${keys.join(', ')}`);
    if (value !== undefined && typeof value !== 'string') throw wrongUsage(`${file}: ${key} must be a string`);
  }
  return config;
}
