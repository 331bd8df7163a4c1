import { createParamDecorator, type ExecutionContext, UnauthorizedException } from '@nestjs/common';

export const tenants: readonly string[] = ['acme', 'globex', 'initech'];

/** The tenant of a request. A real app takes it from a verified token; here the header `x-tenant` is believed. */
export const Tenant = createParamDecorator((_: unknown, context: ExecutionContext): string => {
  const header: unknown = context.switchToHttp().getRequest().headers['x-tenant'];
  if (typeof header === 'string' && tenants.includes(header)) return header;
  throw new UnauthorizedException(`send the header x-tenant with one of: ${tenants.join(', ')}`);
});
