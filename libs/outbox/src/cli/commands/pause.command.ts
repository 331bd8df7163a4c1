import { Command } from 'nest-commander';
import { actor } from '../actor.js';
import { wrongUsage } from '../cli-error.js';
import { OutboxCommand } from '../command.js';
import { type ExitCode, exit } from '../exit-codes.js';
import { type ActingOptions, acting, type CommonOptions, common, Options } from '../options.js';
import { known, type TargetOptions, target, targetFrom } from '../pause-target.js';
import { pauseWords, resumeCommand } from '../render/pauses.js';
import { parseWhen } from '../when.js';

interface PauseCommandOptions extends CommonOptions, ActingOptions, TargetOptions {
  readonly until?: Date;
}

@Command({
  name: 'pause',
  arguments: '[durable]',
  description: 'handles nothing of it until it is resumed, on any process; loses nothing',
})
@Options(
  target,
  {
    flags: '--until <time>',
    description: 'ends by itself then: 06:00, 2h (from now), or ISO; default: never',
    parse: (given) => parseWhen('--until', given, 'next'),
  },
  acting,
  common,
)
export class PauseCommand extends OutboxCommand<PauseCommandOptions> {
  protected async answer([durable]: readonly string[], options: PauseCommandOptions): Promise<ExitCode> {
    const target = targetFrom('pause', durable, options);
    const { until } = options;
    if (until && until.getTime() <= Date.now()) throw wrongUsage(`--until ${until.toISOString()} is past`);
    const connected = await this.session.open(options);
    await known(connected, target);
    const pause = await connected.inspector.pause(target, { ...actor(options), ...(until ? { until } : {}) });
    this.say(
      options,
      pause,
      (pause) => `paused ${pause.kind} '${pause.name}' ${pauseWords(pause)}\nto end it: ${resumeCommand(pause)}`,
    );
    return exit.done;
  }
}
