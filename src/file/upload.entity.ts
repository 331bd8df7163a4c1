import { Column, Entity, PrimaryColumn } from 'typeorm';

/** A file that is not yet a blob of anybody. */
@Entity({ schema: 'demo', name: 'uploads' })
export class Upload {
  @PrimaryColumn('uuid')
  id!: string;

  @Column('text')
  path!: string;

  @Column('timestamptz', { name: 'begun_at' })
  begunAt!: Date;
}
