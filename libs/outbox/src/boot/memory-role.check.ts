import type { BootCheck, GraphContext } from './boot-check.js';

/** A transport for one process needs that process to do everything: no other may relay what it publishes. */
export const memoryRoleCheck: BootCheck<GraphContext> = {
  name: 'transport',
  run: ({ settings: { role, transport } }) =>
    transport.capabilities.processes !== 'one' || role === 'all'
      ? []
      : [
          {
            check: 'transport',
            message: `OutboxModule.forRoot: transport ${transport.name}() is for exactly one process, which publishes, relays and handles, but role is '${role}', so that another process has to do the rest; use role 'all', or postgres() in every process`,
          },
        ],
};
