/** Where handlers of an event are asked to end, in this process; whoever has them listens. */
export class CancelCalls {
  private listener: (eventId: string) => void = () => {};

  heardBy(listener: (eventId: string) => void): void {
    this.listener = listener;
  }

  call(eventId: string): void {
    this.listener(eventId);
  }
}
