import type { ConsumerInfo } from 'nats';
import { StallWatch } from './stall.js';

const waiting = { num_pending: 5, num_waiting: 1, num_ack_pending: 0 };
const long = 60_000;

function consumer(given: number, more: Partial<ConsumerInfo> = {}): ConsumerInfo {
  return {
    name: 'ledger',
    created: 'first',
    config: { max_ack_pending: 100 },
    delivered: { consumer_seq: given, stream_seq: given },
    ...waiting,
    ...more,
  } as ConsumerInfo;
}

describe('a watch over consumers that give nothing', () => {
  it('finds one that was given more than the stream holds, at once', () => {
    expect(new StallWatch().judge(consumer(20), 5, 0)).toBe('ahead');
    expect(new StallWatch().judge(consumer(20), 20, 0)).toBeUndefined();
  });

  it('finds one that gave nothing between two looks, while messages and an own request wait', () => {
    const watch = new StallWatch();
    expect(watch.judge(consumer(20), 25, long)).toBeUndefined();
    expect(watch.judge(consumer(20), 25, long)).toBe('stalled');
  });

  it.each<[string, Partial<ConsumerInfo>, number]>([
    ['nothing waits', { num_pending: 0 }, long],
    ["no request waits, or only one of a process that is gone and not this one's", {}, 500],
    ['no request is known to the server', { num_waiting: 0 }, long],
    ['somebody paused it', { paused: true }, long],
    ['as many are unanswered as may be', { num_ack_pending: 100 }, long],
  ])('lets one alone where %s', (_, more, openMs) => {
    const watch = new StallWatch();
    for (let looks = 0; looks < 4; looks++) expect(watch.judge(consumer(20, more), 25, openMs)).toBeUndefined();
  });

  it('lets one alone that goes on, that has just begun to wait, or that is another one by now', () => {
    const watch = new StallWatch();
    expect(watch.judge(consumer(20), 25, long)).toBeUndefined();
    expect(watch.judge(consumer(21), 25, long)).toBeUndefined();
    expect(watch.judge(consumer(21, { num_pending: 0 }), 25, long)).toBeUndefined();
    expect(watch.judge(consumer(21), 25, long)).toBeUndefined();
    expect(watch.judge(consumer(21, { created: 'second' }), 25, long)).toBeUndefined();
    expect(watch.judge(consumer(21, { created: 'second' }), 25, long)).toBe('stalled');
  });
});
