import type { DataSource, Repository } from 'typeorm';
import { Invoice, type InvoiceRepository, Line } from './invoices.js';

/** Where a way of using TypeORM finds what it needs; `invoice` is there already, with one line. */
export interface Desk {
  readonly dataSource: DataSource;
  readonly repository: Repository<Invoice>;
  readonly own: InvoiceRepository;
  readonly invoice: Invoice & { id: number };
  readonly line: Line & { id: number };
}

export type Way = (desk: Desk, title: string) => Promise<unknown>;

const into = 'INSERT INTO invoice (title) VALUES ($1)';

/** Every way of writing through what Nest injects. Each stands on one line, after its name: tests look for that line. */
// biome-ignore format: one line each
export const writes: Record<string, Way> = {
  'save': ({ repository }, title) => repository.save({ title }),
  'save, awaited': async ({ repository }, title) => await repository.save({ title }),
  'save, of several': ({ repository }, title) => repository.save([{ title }, { title: `${title} 2` }]),
  'save, of several at once': ({ repository }, title) => Promise.all([repository.save({ title })]),
  'save, of what was created': ({ repository }, title) => repository.save(repository.create({ title })),
  'remove': ({ repository, invoice }) => repository.remove({ ...invoice } as Invoice),
  'softRemove': ({ repository, invoice }) => repository.softRemove({ ...invoice } as Invoice),
  'recover': ({ repository, invoice }) => repository.recover({ ...invoice, deletedAt: new Date() } as Invoice),
  'insert': ({ repository }, title) => repository.insert({ title }),
  'update': ({ repository, invoice }, title) => repository.update(invoice.id, { title }),
  'upsert': ({ repository }, title) => repository.upsert({ title }, ['title']),
  'delete': ({ repository, invoice }) => repository.delete({ id: invoice.id }),
  'softDelete': ({ repository, invoice }) => repository.softDelete(invoice.id),
  'restore': ({ repository, invoice }) => repository.restore(invoice.id),
  'increment': ({ repository, invoice }) => repository.increment({ id: invoice.id }, 'total', 1),
  'decrement': ({ repository, invoice }) => repository.decrement({ id: invoice.id }, 'total', 1),
  'updateAll': ({ repository }) => repository.updateAll({ total: 7 }),
  'clear': ({ repository }) => repository.clear({ cascade: true }),
  'query of the repository': ({ repository }, title) => repository.query(into, [title]),
  'insert builder of the repository': ({ repository }, title) => repository.createQueryBuilder().insert().values({ title }).execute(),
  'update builder of the repository': ({ repository }, title) => repository.createQueryBuilder().update().set({ title }).where('true').execute(),
  'delete builder of the repository': ({ repository }) => repository.createQueryBuilder().delete().where('true').execute(),
  'soft delete builder of the repository': ({ repository }) => repository.createQueryBuilder().softDelete().where('true').execute(),
  'relation builder of the repository': ({ repository, invoice, line }) => repository.createQueryBuilder().relation('lines').of(invoice.id).remove(line.id),
  'save of the manager': ({ dataSource }, title) => dataSource.manager.save(Invoice, { title }),
  'insert of the manager': ({ dataSource }, title) => dataSource.manager.insert(Invoice, { title }),
  'builder of the manager': ({ dataSource }, title) => dataSource.manager.createQueryBuilder().insert().into(Invoice).values({ title }).execute(),
  'query of the manager': ({ dataSource }, title) => dataSource.manager.query(into, [title]),
  'query of the DataSource': ({ dataSource }, title) => dataSource.query(into, [title]),
  'sql of the DataSource': ({ dataSource }, title) => dataSource.sql`INSERT INTO invoice (title) VALUES (${title})`,
  'builder of the DataSource': ({ dataSource }, title) => dataSource.createQueryBuilder().insert().into(Invoice).values({ title }).execute(),
  'save of a repository asked for here': ({ dataSource }) => dataSource.getRepository(Line).save({ text: 'x' }),
  'save of an extended repository': ({ repository }, title) => repository.extend({}).save({ title }),
  'save of a repository of one\'s own': ({ own }, title) => own.save({ title }),
  'insert of a repository of one\'s own': ({ own }, title) => own.insert({ title }),
  'builder of a repository of one\'s own': ({ own }, title) => own.createQueryBuilder().insert().values({ title }).execute(),
  'query of a repository of one\'s own': ({ own }, title) => own.query(into, [title]),
};

/** Every way of reading. */
// biome-ignore format: one line each
export const reads: Record<string, Way> = {
  'find': ({ repository }) => repository.find(),
  'findBy': ({ repository, invoice }) => repository.findBy({ id: invoice.id }),
  'findOne': ({ repository, invoice }) => repository.findOne({ where: { id: invoice.id } }),
  'findOneBy': ({ repository, invoice }) => repository.findOneBy({ id: invoice.id }),
  'findOneByOrFail': ({ repository, invoice }) => repository.findOneByOrFail({ id: invoice.id }),
  'findAndCount': ({ repository }) => repository.findAndCount(),
  'count': ({ repository }) => repository.count(),
  'countBy': ({ repository, invoice }) => repository.countBy({ id: invoice.id }),
  'exists': ({ repository }) => repository.exists(),
  'existsBy': ({ repository, invoice }) => repository.existsBy({ id: invoice.id }),
  'sum': ({ repository }) => repository.sum('total'),
  'preload': ({ repository, invoice }) => repository.preload({ id: invoice.id, title: 'x' }),
  'select builder of the repository': ({ repository }) => repository.createQueryBuilder('i').getMany(),
  'raw select builder of the manager': ({ dataSource }) => dataSource.manager.createQueryBuilder(Invoice, 'i').getRawMany(),
  'counting builder of the DataSource': ({ dataSource }) => dataSource.createQueryBuilder(Invoice, 'i').getCount(),
  'query of the DataSource, a plain select': ({ dataSource }) => dataSource.query('SELECT count(*) FROM invoice'),
  'find of a repository of one\'s own': ({ own }) => own.find(),
};
