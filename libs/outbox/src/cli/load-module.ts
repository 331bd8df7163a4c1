import { resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import type { Type } from '@nestjs/common';
import { wrongUsage } from './cli-error.js';

/** The module that `path#Name` names; without a name `AppModule`, the default export, or the only class there is. */
export async function loadModule(given: string): Promise<Type> {
  const [path = '', name] = given.split('#');
  if (/\.[cm]?tsx?$/.test(path)) throw wrongUsage(`${path} is TypeScript: build it, and name the compiled file`);
  const exported = await exportsOf(resolve(path));
  const classes = Object.entries(exported).filter((entry): entry is [string, Type] => typeof entry[1] === 'function');
  const wanted = name === undefined ? ['AppModule', 'default'] : [name];
  const [found] = wanted.flatMap((wish) => classes.filter(([key]) => key === wish));
  const [only, another] = classes;
  const chosen = found ?? (name === undefined && !another ? only : undefined);
  if (!chosen)
    throw wrongUsage(
      `${path} exports no ${name ?? 'AppModule'}: name one with ${path}#Name (it exports ${classes.map(([key]) => key).join(', ') || 'no class'})`,
    );
  return chosen[1];
}

async function exportsOf(file: string): Promise<Record<string, unknown>> {
  try {
    const loaded = await import(pathToFileURL(file).href);
    // Of CommonJS what Node did not find by looking at its source is under the default.
    return typeof loaded.default === 'object' ? { ...loaded.default, ...loaded } : loaded;
  } catch (error) {
    throw wrongUsage(`${file} cannot be loaded: ${error instanceof Error ? error.message : String(error)}`);
  }
}
