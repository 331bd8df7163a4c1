/** Who may import whom (README, "How the code is laid out"). Severity error everywhere: a warning guards nothing. */
const lib = '^libs/outbox/src';
const features = '(events|relay|consume|recover|jobs|retention|inspect)';
const doors = `${lib}/(index|testing/index|transports/jetstream/index)\\.ts`;
const specs = '\\.spec\\.ts$';

const rule = (name, comment, from, to) => ({ name, comment, severity: 'error', from, to });

module.exports = {
  forbidden: [
    rule('no-circular', 'A cycle has no bottom to start reading from.', {}, { circular: true }),
    rule(
      'core-is-a-leaf',
      'core imports nothing of ours.',
      { path: `${lib}/core/` },
      { path: lib, pathNot: `${lib}/core/` },
    ),
    rule(
      'tables-on-core',
      'tables stand on core (and the errors) alone.',
      { path: `${lib}/tables/` },
      { path: lib, pathNot: `${lib}/(core|tables)/|${lib}/outbox\\.errors\\.ts` },
    ),
    rule(
      'transactions-on-core-and-tables',
      'transactions stand on core and tables.',
      { path: `${lib}/transactions/` },
      { path: lib, pathNot: `${lib}/(core|tables|transactions)/|${lib}/outbox\\.errors\\.ts` },
    ),
    rule(
      'transports-on-core',
      'A transport knows the port, postgres also the tables; never a feature, never another transport.',
      { path: `${lib}/transports/([^/]+)/`, pathNot: specs },
      { path: lib, pathNot: `${lib}/core/|${lib}/transports/$1/|${lib}/tables/|${lib}/outbox\\.errors\\.ts` },
    ),
    rule(
      'only-postgres-on-tables',
      'Only the postgres transport reads tables.',
      { path: `${lib}/transports/`, pathNot: `${lib}/transports/postgres/` },
      { path: `${lib}/tables/` },
    ),
    rule(
      'features-not-sideways',
      'Features stand on core, tables, transactions, errors and options; sideways only consume → events and recover → consume.',
      { path: `${lib}/${features}/`, pathNot: specs },
      {
        path: `${lib}/`,
        pathNot: [
          `${lib}/(core|tables|transactions)/`,
          `${lib}/outbox\\.(errors|job-errors|inspect-errors|options|option-checker)\\.ts`,
          `${lib}/$1/`,
          `${lib}/(events|consume)/`,
        ],
      },
    ),
    rule(
      'events-only-for-consume',
      'events is read sideways by consume alone.',
      { path: `${lib}/${features}/`, pathNot: `${lib}/(consume|events)/` },
      { path: `${lib}/events/` },
    ),
    rule(
      'consume-only-for-recover',
      'consume is read sideways by recover alone.',
      { path: `${lib}/${features}/`, pathNot: `${lib}/(consume|recover)/` },
      { path: `${lib}/consume/` },
    ),
    rule(
      'options-on-core',
      'Errors and options are leaves of their own.',
      { path: `${lib}/outbox\\.(errors|job-errors|inspect-errors|options|option-checker)\\.ts` },
      { path: lib, pathNot: `${lib}/core/|${lib}/tables/schema/|${lib}/outbox\\.` },
    ),
    rule(
      'nobody-imports-the-index',
      'Inner files never import a door; the command line takes its types from the first one, as any user does.',
      { path: lib, pathNot: `${specs}|${lib}/(testing|cli)/` },
      { path: doors },
    ),
    rule(
      'module-is-the-root',
      'Only the doors import the module; only the module and the command line import the wiring.',
      {
        path: lib,
        pathNot: `${lib}/(index|outbox\\.(module|wiring|foundation|inspection|lifecycle))\\.ts|${specs}|${lib}/(testing|cli)/`,
      },
      { path: `${lib}/outbox\\.(module|wiring|foundation|inspection|lifecycle)\\.ts` },
    ),
    rule(
      'nats-behind-its-transport',
      'nats is imported in transports/jetstream alone, and in the one file of the benchmark that is the client without the library.',
      { pathNot: `${lib}/transports/jetstream/|^bench/plain-nats\\.ts$` },
      { path: '(^|/)node_modules/nats/|^nats$' },
    ),
    rule(
      'cli-is-a-composition',
      'The command line is wired as the module is, and stands on what inspects, checks and installs; never on what works.',
      { path: `${lib}/cli/`, pathNot: specs },
      {
        path: `${lib}/`,
        pathNot: [
          `${lib}/(cli|core|tables|inspect|boot)/`,
          `${lib}/(index|outbox\\.(options|wiring))\\.ts`,
          `${lib}/(events/known-events|consume/subscription\\.registry|jobs/job\\.registry)\\.ts`,
          `${lib}/(testing/check-outbox|transports/postgres/postgres\\.transport)\\.ts`,
        ],
      },
    ),
    rule(
      'nobody-imports-the-cli',
      'The command line is a door: a process begins there.',
      { pathNot: `${lib}/cli/` },
      { path: `${lib}/cli/` },
    ),
    rule(
      'commander-behind-the-cli',
      'nest-commander is an optional peer: whoever does without it must not meet it.',
      { pathNot: `${lib}/cli/` },
      { path: '(^|/)node_modules/nest-commander/|^nest-commander$' },
    ),
    rule(
      'doors-only',
      "The demo, the tests, the migrations, the benchmark and the soak use the package's doors.",
      { path: '^(src|test|migrations|bench|soak)/' },
      { path: `${lib}/`, pathNot: doors },
    ),
    rule(
      'no-inner-nest',
      'Nest is used through its documented doors.',
      { path: '^(src|libs|test|migrations|bench|soak)/' },
      {
        path: 'node_modules/@nestjs/[^/]+/(?!index|dist/index|package)',
        pathNot: 'node_modules/@nestjs/[^/]+/(dist/)?index\\.(js|d\\.ts)',
      },
    ),
  ],
  options: {
    doNotFollow: { path: 'node_modules' },
    exclude: { path: '(^|/)dist/' },
    tsPreCompilationDeps: true,
    tsConfig: { fileName: 'tsconfig.base.json' },
    enhancedResolveOptions: {
      exportsFields: ['exports'],
      conditionNames: ['import', 'require', 'node', 'default', 'types'],
    },
  },
};
