import fc from 'fast-check';
import { headers, type MsgHdrs } from 'nats';
import type { OutgoingRow } from '../../core/transport.js';
import { eventIdOf, eventOf, installationOf, messageHeaders } from './cloud-event.js';

const origin = { installation: 'an-outbox', source: '/billing' };
const id = '019a1b2c-3d4e-7f00-8000-0123456789ab';
const row: OutgoingRow = {
  id,
  type: 'billing.invoice.paid',
  tenantId: 'acme',
  subject: 'invoice/7',
  payload: '{"invoiceId":"7"}',
  headers: { traceparent: '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01' },
  occurredAt: new Date('2026-11-29T12:34:56.789Z'),
};

const base64 = (value: unknown) => Buffer.from(JSON.stringify(value)).toString('base64');
const bytes = (text: string) => new TextEncoder().encode(text);
const record = (all: MsgHdrs) => Object.fromEntries(all.keys().map((key) => [key, all.get(key)]));
/** As it comes from the wire. */
const sent = (all: MsgHdrs): MsgHdrs => {
  const Decoder = all.constructor as unknown as { decode(data: Uint8Array): MsgHdrs };
  return Decoder.decode((all as unknown as { encode(): Uint8Array }).encode());
};

describe('an event as a message', () => {
  it('is a CloudEvent in binary mode', () => {
    expect(record(messageHeaders(row, origin))).toEqual({
      'ce-specversion': '1.0',
      'ce-id': id,
      'ce-source': '/billing',
      'ce-type': 'billing.invoice.paid',
      'ce-time': '2026-11-29T12:34:56.789Z',
      'ce-subject': 'invoice/7',
      'ce-datacontenttype': 'application/json',
      'ce-tenantid': 'acme',
      'ce-outboxid': 'an-outbox',
      'content-type': 'application/json',
      traceparent: '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01',
    });
  });

  it('has no header for what it has not', () => {
    const keys = messageHeaders({ ...row, tenantId: null, subject: null, headers: {} }, origin).keys();
    expect(keys.filter((key) => /tenant|subject|trace/.test(key))).toEqual([]);
  });

  it.each([
    // The example of the specification.
    ['Euro € 😀', 'Euro%20%E2%82%AC%20%F0%9F%98%80'],
    ['say "no" at 100%', 'say%20%22no%22%20at%20100%25'],
    ["plain-_.~!*'()/?:@&=+$,;#[]{}|\\^`<>", "plain-_.~!*'()/?:@&=+$,;#[]{}|\\^`<>"],
    ['a\r\nce-tenantid: other', 'a%0D%0Ace-tenantid:%20other'],
    ['\u007f\u0080', '%7F%C2%80'],
  ])('has the subject %j as %s', (subject, text) => {
    const all = sent(messageHeaders({ ...row, subject }, origin));
    expect(all.get('ce-subject')).toBe(text);
    expect(all.get('ce-tenantid')).toBe('acme');
    expect(eventOf(id, row.type, all, bytes('1')).subject).toBe(subject);
  });

  it('comes back as it was, whatever its texts are', () => {
    const text = fc.string({ unit: 'grapheme', minLength: 1 });
    fc.assert(
      fc.property(text, text, fc.jsonValue(), (tenantId, subject, payload) => {
        const given = { ...row, tenantId, subject, payload: JSON.stringify(payload) };
        const all = sent(messageHeaders(given, origin));
        const { payload: read, ...rest } = eventOf(id, row.type, all, bytes(given.payload));
        expect(JSON.stringify(read)).toBe(given.payload);
        const { payload: _, ...wanted } = given;
        expect(rest).toEqual(wanted);
        expect([...(all.get('ce-subject') + all.get('ce-tenantid'))].every((c) => c >= '!' && c <= '~')).toBe(true);
      }),
    );
  });

  it.each([
    ['a name of two words', { 'x y': 'z' }],
    ['a value of two lines', { x: 'y\r\nce-tenantid: other' }],
    ['a value that is not ASCII', { x: 'é', plain: 'yes' }],
    ['a value with blanks around it', { x: ' y ' }],
    ["a name of ours or the server's", { 'CE-Id': 'x', 'Nats-Msg-Id': 'x', 'Content-Type': 'text/plain' }],
  ])('brings all of its headers where one has %s', (_, given) => {
    const all = sent(messageHeaders({ ...row, headers: given }, origin));
    expect(eventOf(id, row.type, all, bytes('1')).headers).toEqual(given);
    expect([all.get('ce-id'), all.get('ce-tenantid')]).toEqual([id, 'acme']);
  });

  it("keeps names that are ours or the server's to itself", () => {
    const given = {
      'Nats-Msg-Id': 'x',
      'nats-expected-stream': 'x',
      'CE-Id': 'x',
      'Content-Type': 'text/plain',
      'x-own': 'y',
    };
    const all = messageHeaders({ ...row, headers: given }, origin);
    expect(all.keys().filter((key) => !key.startsWith('ce-'))).toEqual(['x-own', 'content-type']);
    expect(all.get('ce-id')).toBe(id);
  });
});

describe('a message as an event', () => {
  const message = (values: Record<string, string>): MsgHdrs => {
    const all = headers();
    for (const [name, value] of Object.entries(values)) all.append(name, value);
    return all;
  };
  const read = (values: Record<string, string>, body = '{}') => eventOf(id, row.type, message(values), bytes(body));

  it('is read whatever the case of its headers, quoted ones and needlessly encoded ones too', () => {
    const all = message({ 'Ce-Id': id.toUpperCase(), 'CE-OUTBOXID': 'theirs' });
    expect([eventIdOf(all), installationOf(all)]).toEqual([id, 'theirs']);
    expect(read({ 'CE-Subject': '"a \\"b\\" %e2%82%ac"' }).subject).toBe('a "b" €');
    expect(read({ 'ce-subject': '%61%62' }).subject).toBe('ab');
  });

  it('happened when its id says where it does not say it', () => {
    expect(read({}).occurredAt).toEqual(new Date(0x019a1b2c3d4e));
    expect(read({ 'ce-time': '2026-11-29T13:34:56+01:00' }).occurredAt).toEqual(new Date('2026-11-29T12:34:56Z'));
  });

  it.each([
    ['its time is none', { 'ce-time': 'yesterday' }, '{}', 'its ce-time "yesterday" is no time'],
    ['its time is beyond years', { 'ce-time': '+012345-01-01T00:00:00Z' }, '{}', 'is no time'],
    ['its bytes are no UTF-8', { 'ce-subject': '%C0%A0' }, '{}', 'URI malformed'],
    ['a percent sign is none of the encoding', { 'ce-subject': '100%' }, '{}', 'URI malformed'],
    ['its body is no JSON', {}, '<a/>', 'JSON'],
    ['its headers are no JSON', { 'ce-outboxheaders': '!' }, '{}', 'JSON'],
    ['its headers are none', { 'ce-outboxheaders': base64([1]) }, '{}', 'no headers'],
    ['one of its headers is no text', { 'CE-OutboxHeaders': base64({ a: 'b', c: {} }) }, '{}', 'no headers'],
    ['its body is empty', {}, '', 'JSON'],
  ])('cannot be read when %s', (_what, values, body, says) => {
    expect(() => read(values, body)).toThrow(says);
  });

  it('cannot be read when its body is no UTF-8', () => {
    expect(() => eventOf(id, row.type, headers(), new Uint8Array([0x22, 0xff, 0x22]))).toThrow();
  });

  it.each(['', 'x', '7', '019a1b2c-3d4e-4f00-8000-0123456789ab', `${id}0`, `${id}' OR true --`])(
    'has no id that an outbox gave: %j',
    (given) => expect(eventIdOf(message({ 'ce-id': given }))).toBeUndefined(),
  );

  it('without headers has none', () => {
    expect([eventIdOf(undefined), installationOf(undefined)]).toEqual([undefined, undefined]);
  });
});
