import { Column, Entity, PrimaryColumn } from 'typeorm';

/** Found by its token before anybody's tenant is known, so no policy hides it. */
@Entity({ schema: 'demo', name: 'sessions' })
export class Session {
  @PrimaryColumn('uuid')
  token!: string;

  @Column('text', { name: 'tenant_id' })
  tenantId!: string;

  @Column('timestamptz', { name: 'expires_at' })
  expiresAt!: Date;
}
