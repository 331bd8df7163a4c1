import { Column, Entity, PrimaryGeneratedColumn } from 'typeorm';

@Entity({ schema: 'demo', name: 'audit_lines' })
export class AuditLine {
  @PrimaryGeneratedColumn('identity', { type: 'bigint' })
  id!: string;

  @Column('uuid', { name: 'event_id' })
  eventId!: string;

  @Column('text')
  line!: string;
}
