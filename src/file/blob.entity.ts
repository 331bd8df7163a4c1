import { Column, Entity, PrimaryColumn } from 'typeorm';

@Entity({ schema: 'demo', name: 'blobs' })
export class Blob {
  @PrimaryColumn('uuid')
  id!: string;

  @Column('text')
  name!: string;

  /** Of its file, in the folder of blobs. */
  @Column('text')
  path!: string;
}
