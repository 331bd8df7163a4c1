import { Column, Entity, PrimaryGeneratedColumn } from 'typeorm';

@Entity({ schema: 'demo', name: 'renewals' })
export class Renewal {
  @PrimaryGeneratedColumn('identity', { type: 'bigint' })
  id!: string;

  @Column('uuid', { name: 'subscription_id' })
  subscriptionId!: string;

  /** Of the job that renewed it. */
  @Column('timestamptz')
  slot!: Date;

  @Column('int')
  cents!: number;
}
