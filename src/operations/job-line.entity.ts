import { Column, Entity, PrimaryGeneratedColumn } from 'typeorm';

/** One run of a periodic job; of a job per tenant, one tenant's part of it. */
@Entity({ schema: 'demo', name: 'job_log' })
export class JobLine {
  @PrimaryGeneratedColumn('identity', { type: 'bigint' })
  id!: string;

  @Column('text')
  job!: string;

  @Column('timestamptz')
  slot!: Date;

  @Column('int')
  attempt!: number;

  @Column('text', { name: 'tenant_id', nullable: true })
  tenantId!: string | null;

  /** The process that ran it. */
  @Column('text')
  worker!: string;

  @Column('timestamptz', { name: 'ended_at', nullable: true })
  endedAt!: Date | null;

  /** What the job counted: rows it removed, subscriptions it renewed. */
  @Column('int', { nullable: true })
  result!: number | null;

  @Column('text', { nullable: true })
  error!: string | null;
}
