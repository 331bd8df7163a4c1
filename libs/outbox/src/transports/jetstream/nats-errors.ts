/** What the server's API says beside its text; codes: nats-server, server/errors.json. */
export function apiCode(error: unknown): number | undefined {
  return (error as { api_error?: { err_code?: number } } | undefined)?.api_error?.err_code;
}

export const streamNotFound = 10059;
export const consumerNotFound = 10014;
export const messageNotFound = 10037;
const streamNameInUse = 10058;
const consumerExists = new Set([10013, 10148, 10012, 10105]);
/** Not enabled at all, or not for this account. */
const notEnabled = new Set([10076, 10039]);
export const subjectsOverlap = 10065;
export const replicasUnsupported = 10074;

export const isStreamThere = (error: unknown): boolean => apiCode(error) === streamNameInUse;
/** Somebody was first, perhaps with another start; on 2.9 a difference that cannot be changed (10012). */
export const isConsumerThere = (error: unknown): boolean => consumerExists.has(apiCode(error) ?? 0);

/** The package gives its own errors a code, and those of the server's API a number. */
function clientCode(error: unknown): string | undefined {
  const code = (error as { code?: unknown } | undefined)?.code;
  return typeof code === 'string' ? code : undefined;
}

export const isNoResponders = (error: unknown): boolean => clientCode(error) === '503';
export const isNotEnabled = (error: unknown): boolean => notEnabled.has(apiCode(error) ?? 0) || isNoResponders(error);
/** Refused for what was asked; what the server cannot do now has 500 or 503. */
export const isBadRequest = (error: unknown): boolean =>
  (error as { api_error?: { code?: number } } | undefined)?.api_error?.code === 400;
export const isRefusedLogin = (error: unknown): boolean =>
  ['AUTHORIZATION_VIOLATION', 'BAD_AUTHENTICATION', 'AUTHENTICATION_EXPIRED', 'BAD_CREDS'].includes(
    clientCode(error) ?? '',
  );

/** What Node, or the package, says of certificates and of TLS that one side has and the other has not. */
const aboutTls = /^(TLS$|SERVER_OPT_NA$|ERR_TLS_|ERR_SSL_|UNABLE_TO_)|CERT/;
export const isRefusedTls = (error: unknown): boolean => aboutTls.test(clientCode(error) ?? '');

const wordsOfClient: Readonly<Record<string, string>> = {
  '503': 'nobody answers for the stream (no leader, no stream, or JetStream is off)',
  TIMEOUT: 'the server did not answer in time',
  CONNECTION_CLOSED: 'the connection is closed',
  CONNECTION_REFUSED: 'the connection is refused',
  DISCONNECT: 'the connection was lost',
};
const wordsOfApi: Readonly<Record<number, string>> = {
  10077: 'the stream is full (max_bytes or max_msgs): raise it, or wait until messages are older than max_age',
  10047: 'the server has no room left for streams',
  10023: 'the server has no resources left',
  10060: 'the subjects lead to another stream',
};

/** What is wrong with a broker, for people. */
export function brokerWords(error: unknown): string {
  const words = wordsOfApi[apiCode(error) ?? 0] ?? wordsOfClient[clientCode(error) ?? ''];
  const text = error instanceof Error ? error.message : String(error);
  return words ? `${words} (${text})` : text;
}

/** Refused for what the event is: the client's own checks, and the server's of sizes. Everything else is the broker's. */
export function rowRefusal(error: unknown): string | undefined {
  const client = clientCode(error);
  const text = error instanceof Error ? error.message : String(error);
  if (client === 'MAX_PAYLOAD_EXCEEDED') return `larger than the server's max_payload: ${text}`;
  if (client === 'BAD_HEADER' || client === 'BAD_SUBJECT') return `cannot be sent: ${text}`;
  const api = apiCode(error);
  if (api === 10054) return `larger than the stream's max_msg_size: ${text}`;
  return api === 10097 ? `its headers are larger than the server takes: ${text}` : undefined;
}

/** The account may not publish on this subject: the event's fault where it may on others, and else the set-up's. */
export function isForbiddenSubject(error: unknown): boolean {
  const { permissionContext } = (error ?? {}) as { permissionContext?: { operation?: string } };
  return clientCode(error) === 'PERMISSIONS_VIOLATION' && permissionContext?.operation === 'publish';
}

/** The broker, or the way to it, is in trouble; no event is charged for it. */
export class BrokerTrouble extends Error {
  readonly code = 'OUTBOX_BROKER';

  constructor(cause: unknown) {
    super(brokerWords(cause), { cause });
    this.name = 'BrokerTrouble';
  }
}
