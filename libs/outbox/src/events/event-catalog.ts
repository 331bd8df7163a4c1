/**
 * The payloads of event types, for typed names without schemas. Open to declaration merging:
 *
 *     declare module 'nestjs-outbox' {
 *       interface EventCatalog { 'billing.invoice.paid': { invoiceId: string } }
 *     }
 *
 * From the first entry on, a name that is not in it does not compile.
 */
// biome-ignore lint/suspicious/noEmptyInterface: it is there to be merged with.
export interface EventCatalog {}

/** A name of the catalogue; any string while the catalogue is empty. */
export type EventName = [keyof EventCatalog] extends [never] ? string : keyof EventCatalog & string;

/** `module.entity.verb` with `*` for any token, such as `billing.*.*`. */
export type EventPattern = `${string}*${string}`;
