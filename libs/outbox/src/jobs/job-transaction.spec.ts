import { type JobTransactionParts, type Piece, runPiece } from './job-transaction.js';

describe('a piece of a job that the database is in the way of', () => {
  it('fails with what the database said when it is not tried again because the job was asked to end', async () => {
    const refused = Object.assign(new Error('connect ECONNREFUSED'), { code: 'ECONNREFUSED' });
    const parts = {
      database: {
        dataSource: { createQueryRunner: () => ({ release: async () => {} }) },
        clientOf: () => Promise.reject(refused),
      },
    } as unknown as JobTransactionParts;
    const piece = { name: 'job a, tenant b' } as Piece;
    await expect(runPiece(parts, piece, AbortSignal.abort())).rejects.toBe(refused);
  });
});
