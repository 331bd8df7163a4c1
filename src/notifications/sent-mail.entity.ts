import { Column, Entity, PrimaryGeneratedColumn } from 'typeorm';

/** The app's own note that a mail went out; the mail itself is the mail server's. */
@Entity({ schema: 'demo', name: 'sent_mails' })
export class SentMail {
  @PrimaryGeneratedColumn('identity', { type: 'bigint' })
  id!: string;

  @Column('uuid', { name: 'event_id' })
  eventId!: string;

  @Column('text', { name: 'idempotency_key' })
  idempotencyKey!: string;

  @Column('text')
  recipient!: string;
}
