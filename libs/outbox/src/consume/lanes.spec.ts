import type { Lane } from './lane.js';
import { Lanes } from './lanes.js';
import type { Subscription } from './subscription.js';

describe('the lanes of a process', () => {
  it('ask for nothing while messages on their way take all the room, and ask when there is some again', () => {
    const lanes = new Lanes();
    lanes.open(new Map([[1, {} as Subscription]]));
    const roomOf = ({ waiting, running, arriving }: Lane) => 4 - waiting.length - running - arriving;
    const arriving = Array.from({ length: 4 }, () => ({ durable: 1 }));
    lanes.arriving(arriving, 1);
    lanes.expectMore([1]);
    // The taker, told that it may take, would find no room, expect more, and be told so again: in one endless microtask.
    expect(lanes.takesMore(roomOf)).toBe(false);
    lanes.arriving(arriving, -1);
    expect(lanes.takesMore(roomOf)).toBe(true);
    expect(lanes.takesMore(roomOf)).toBe(false);
  });
});
