// Runs the JetStream tests on each nats-server that Debian ships; --fetch-only prints where they are, and other
// arguments go to Jest. Fetched once, into node_modules/.cache/nats-server; delete a folder there to fetch it again.
import { spawnSync } from 'node:child_process';
import { fetchNats, natsVersion } from 'throwaway-nats';

const jest = ['--testPathPatterns', 'jetstream'];
/** With what each had when this was written: a suite moves on, testing every few weeks. */
const suites = { bookworm: '2.9.10', trixie: '2.10.27', testing: '2.15.1' };

const [fetchOnly, given] = [process.argv.includes('--fetch-only'), process.argv.slice(2)];
const servers = [];
for (const [suite, expected] of Object.entries(suites)) {
  const binary = await fetchNats(suite);
  const version = await natsVersion(binary);
  if (version !== expected) console.error(`${suite} has nats-server ${version} now, no longer ${expected}`);
  if (fetchOnly) console.log(binary);
  servers.push({ binary, version });
}
if (fetchOnly) process.exit();

const failed = [];
for (const { binary, version } of servers) {
  console.log(`\n== nats-server ${version}`);
  const env = { ...process.env, NATS_SERVER_BIN: binary };
  // It would name one server for all of them.
  delete env.NATS_URL;
  const { status } = spawnSync('npx', ['jest', ...jest, ...given], { env, stdio: 'inherit' });
  if (status !== 0) failed.push(version);
}
console.log(`\n${servers.length - failed.length} of ${servers.length} versions passed`);
if (failed.length > 0) console.log(`failed: ${failed.join(', ')}`);
process.exit(failed.length > 0 ? 1 : 0);
