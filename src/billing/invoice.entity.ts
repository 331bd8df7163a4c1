import { Column, Entity, PrimaryColumn } from 'typeorm';

@Entity({ schema: 'demo', name: 'invoices' })
export class Invoice {
  @PrimaryColumn('uuid')
  id!: string;

  @Column('int')
  cents!: number;

  @Column('text')
  email!: string;

  @Column('timestamptz', { name: 'paid_at', nullable: true })
  paidAt!: Date | null;
}
