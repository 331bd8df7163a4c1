import { Column, Entity, PrimaryGeneratedColumn } from 'typeorm';

@Entity({ schema: 'demo', name: 'audit_lines' })
export class AuditLine {
  @PrimaryGeneratedColumn('identity', { type: 'bigint' })
  id!: string;

  /** Null for lines that were imported. */
  @Column('uuid', { name: 'event_id', nullable: true })
  eventId!: string | null;

  @Column('text')
  line!: string;

  @Column('timestamptz', { name: 'created_at' })
  createdAt!: Date;
}
