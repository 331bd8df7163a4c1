import type { Delivery } from '../core/envelope.js';
import type { Database } from '../tables/database.js';
import type { Bound } from '../tables/wire/statement.js';

/**
 * What stands in front of a record that changes the row of a delivery: a message has none yet, and gets one, leased to
 * this process, in the same message to the server and so in the same transaction. All of them carry the first one's number.
 */
export function adoption({ deliveries: table }: Database, deliveries: readonly Delivery[]): Bound[] {
  const messages = deliveries.filter(({ message }) => message);
  const [first] = messages;
  if (!first) return [];
  return [
    table.adopt(
      messages.map(({ eventId }) => eventId),
      messages.map(({ durable }) => durable),
      first.lease,
    ),
  ];
}
