import { Column, Entity, PrimaryGeneratedColumn } from 'typeorm';

/** The tenant is a default of the table: the transaction's own, which the library takes from the event. */
@Entity({ schema: 'demo', name: 'ledger_entries' })
export class LedgerEntry {
  @PrimaryGeneratedColumn('identity', { type: 'bigint' })
  id!: string;

  @Column('uuid', { name: 'event_id' })
  eventId!: string;

  @Column('text', { name: 'invoice_id' })
  invoiceId!: string;

  @Column('int')
  cents!: number;
}
