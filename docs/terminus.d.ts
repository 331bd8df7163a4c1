// The part of @nestjs/terminus 11 that the guide uses; the package itself is not installed here.
declare module '@nestjs/terminus' {
  type AdditionalData = Record<string, unknown>;
  export class HealthIndicatorService {
    check<const Key extends string>(key: Key): HealthIndicatorSession<Key>;
  }
  export class HealthIndicatorSession<Key extends string = string> {
    up<T extends AdditionalData>(data?: T): Record<Key, { status: 'up' } & T>;
    down<T extends AdditionalData>(data?: T): Record<Key, { status: 'down' } & T>;
  }
}
