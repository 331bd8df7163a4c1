import { Column, Entity, PrimaryColumn } from 'typeorm';

@Entity({ schema: 'demo', name: 'subscriptions' })
export class Subscription {
  @PrimaryColumn('uuid')
  id!: string;

  @Column('text')
  plan!: string;

  @Column('int')
  cents!: number;

  @Column('text')
  card!: string;

  @Column('int', { name: 'period_seconds' })
  periodSeconds!: number;

  @Column('timestamptz', { name: 'due_at' })
  dueAt!: Date;
}
