import { Subscribe } from './subscribe.decorator.js';

describe('@Subscribe', () => {
  it('refuses what could never be found: a static method, and one named by a symbol', () => {
    const name = Symbol('post');
    const apply = Subscribe('a.invoice.paid', 'ledger') as (target: object, method: string | symbol, d: object) => void;
    class Handler {
      static post(): void {}
      [name](): void {}
    }
    expect(() => apply(Handler, 'post', {})).toThrow('neither static');
    expect(() => apply(Handler.prototype, name, {})).toThrow('Symbol(post)');
    expect(Object.getOwnPropertySymbols(Function)).toEqual([]);
  });
});
