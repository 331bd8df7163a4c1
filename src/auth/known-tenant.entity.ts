import { Entity, PrimaryColumn } from 'typeorm';

@Entity({ schema: 'demo', name: 'tenants' })
export class KnownTenant {
  @PrimaryColumn('text')
  id!: string;
}
