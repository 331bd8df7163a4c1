import { QueryRunnerAlreadyReleasedError } from 'typeorm';
import { DurableServedError } from '../outbox.errors.js';
import { wrongUsage } from './cli-error.js';
import { exit, exitHelp } from './exit-codes.js';
import { failureOf } from './failure.js';

const coded = (code: string, message = 'it failed', more = {}): Error =>
  Object.assign(new Error(message), { code, ...more });

describe('an error as an exit code', () => {
  it.each([
    ['a usage error', wrongUsage('so not'), exit.usage],
    [
      "commander's own, which has been said already",
      coded('commander.unknownOption', 'x', { exitCode: 1 }),
      exit.usage,
    ],
    ['help that was asked for', coded('commander.helpDisplayed', 'x', { exitCode: 0 }), exit.done],
    ["the library's own", new DurableServedError('ledger'), exit.problem],
    ['a server that is gone', coded('ECONNREFUSED'), exit.unreachable],
    [
      'a connection that ended between two statements of a migration',
      new QueryRunnerAlreadyReleasedError(),
      exit.unreachable,
    ],
    ['a wrong password', coded('28P01'), exit.unreachable],
    ['no such database', coded('3D000'), exit.unreachable],
    ['a missing privilege', coded('42501'), exit.forbidden],
    ['a missing table', coded('42P01'), exit.schema],
    ['a role that is to be granted something and is not there', coded('42704'), exit.problem],
    ['anything else', new TypeError('boom'), exit.unexpected],
    ['what is no error', 'boom', exit.unexpected],
  ])('%s', (_, error, code) => {
    expect(failureOf(error).exitCode).toBe(code);
  });

  it('says something, and has no stack in it', () => {
    expect(failureOf(new AggregateError([])).message).not.toBe('');
    expect(failureOf(coded('ECONNREFUSED', '')).message).toBe('no database: ECONNREFUSED');
    expect(failureOf(new TypeError('boom')).message).toBe('unexpected: boom');
  });

  it('is in the table of --help, each once', () => {
    for (const code of Object.values(exit)) expect(exitHelp()).toMatch(new RegExp(`^ {2}${code} {2}\\w`, 'm'));
    expect(new Set(Object.values(exit)).size).toBe(Object.values(exit).length);
  });
});
