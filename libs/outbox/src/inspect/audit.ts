/** Who does it and why; both go to `outbox.audit`. */
export interface ActionOptions {
  /** Default: host and process id of the app. */
  readonly by?: string;
  readonly reason?: string;
}
