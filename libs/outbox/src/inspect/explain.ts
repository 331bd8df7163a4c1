import { isStorable } from '../core/storable.js';
import type { TransportProblem } from '../core/transport.js';
import { isUuid } from '../core/uuid.js';
import type { Database } from '../tables/database.js';
import type { EventFacts, SceneFacts } from '../tables/explain.table.js';
import type { EventInfo } from './delivery-info.js';
import { notFound } from './explain-not-found.js';
import { type Scene, standings } from './explain-standing.js';
import { block } from './explain-text.js';
import { ExplainWords } from './explain-words.js';
import type { ExplainQuery, Explanation } from './explanation.js';

export type { ExplainQuery, ExplainReason, Explanation, Finding } from './explanation.js';

/** Events that one answer holds. */
const mostEvents = 20;

export class Explainer {
  constructor(
    private readonly database: Database,
    /** How long events are kept. */
    private readonly retentionMs: number,
    /** What this process's transport says is wrong. */
    private readonly transport: () => readonly TransportProblem[] = () => [],
  ) {}

  async explain(query: ExplainQuery): Promise<Explanation> {
    check(query);
    const ids = await this.find(query);
    const { scene: asked, facts } = this.database.explain;
    const [{ rows }, scenes] = await this.database.onPool(facts(ids), asked());
    const scene = this.sceneOf(scenes.rows[0]);
    if (rows.length === 0) return notFound(query, ids, scene, this.retentionMs);
    const words = new ExplainWords(scene);
    const explained = rows.map((event) => ({
      event,
      findings: standings(event, scene).map((standing) => words.finding(event, standing)),
    }));
    return {
      events: rows.map(info),
      findings: explained.flatMap(({ findings }) => findings),
      text: block(explained, scene),
    };
  }

  private async find(query: ExplainQuery): Promise<string[]> {
    const { id, subject, unique, type = null, tenantId = null } = query;
    // Postgres would refuse the question.
    if ([subject, unique, type, tenantId].some((text) => text != null && !isStorable(text))) return [];
    const { bySubject, byKey } = this.database.explain;
    if (id !== undefined) return isUuid(id) ? [id.toLowerCase()] : [];
    const found =
      subject !== undefined
        ? bySubject(subject, type, tenantId, mostEvents)
        : byKey(unique ?? '', type, tenantId, mostEvents);
    const [{ rows }] = await this.database.onPool(found);
    return rows.map((row) => row.id);
  }

  private sceneOf(facts: SceneFacts | undefined): Scene {
    if (!facts) throw new Error('the database did not tell its time');
    const down = this.transport().find(({ status }) => status === 'down');
    return { ...facts, brokerDown: down?.message ?? null };
  }
}

function check(query: ExplainQuery): void {
  const given = [query.id, query.subject, query.unique].filter((value) => value !== undefined);
  if (given.length !== 1 || typeof given[0] !== 'string')
    throw new TypeError('explain: give one of id, subject and unique, as a string');
}

function info({ id, type, tenant_id, subject, payload, headers, created_ms }: EventFacts): EventInfo {
  return {
    ...{ id, type, tenantId: tenant_id, subject, payload },
    headers: headers ?? {},
    publishedAt: new Date(created_ms),
  };
}
