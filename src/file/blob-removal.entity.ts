import { Column, Entity, PrimaryGeneratedColumn } from 'typeorm';

@Entity({ schema: 'demo', name: 'blob_removals' })
export class BlobRemoval {
  @PrimaryGeneratedColumn('identity', { type: 'bigint' })
  id!: string;

  @Column('uuid', { name: 'event_id' })
  eventId!: string;

  @Column('text')
  path!: string;
}
