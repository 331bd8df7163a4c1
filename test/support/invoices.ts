import { Injectable } from '@nestjs/common';
import { InjectRepository } from '@nestjs/typeorm';
import {
  Column,
  DataSource,
  DeleteDateColumn,
  Entity,
  ManyToOne,
  OneToMany,
  PrimaryGeneratedColumn,
  type Relation,
  Repository,
} from 'typeorm';

@Entity()
export class Invoice {
  @PrimaryGeneratedColumn()
  id?: number;

  @Column({ type: 'text', unique: true })
  title!: string;

  @Column({ type: 'int', default: 0 })
  total!: number;

  @DeleteDateColumn({ type: 'timestamptz' })
  deletedAt?: Date | null;

  @OneToMany(
    () => Line,
    (line) => line.invoice,
  )
  lines?: Promise<Line[]>;
}

@Entity()
export class Line {
  @PrimaryGeneratedColumn()
  id?: number;

  @Column({ type: 'text', default: '' })
  text?: string;

  @ManyToOne(
    () => Invoice,
    (invoice) => invoice.lines,
    { onDelete: 'CASCADE' },
  )
  invoice?: Promise<Relation<Invoice>>;
}

/** A repository of one's own in the form that many projects use: with an entity manager of its own. */
@Injectable()
export class InvoiceRepository extends Repository<Invoice> {
  constructor(dataSource: DataSource) {
    super(Invoice, dataSource.createEntityManager());
  }
}

/** A service as most are written: it does not know of transactions. */
@Injectable()
export class InvoiceService {
  constructor(@InjectRepository(Invoice) readonly repository: Repository<Invoice>) {}

  create(title: string): Promise<Invoice> {
    return this.repository.save({ title }); // the service's only write
  }
}
