// The bread and butter of what models write.
interface Repository<T extends { id: string }> { find(id: string): T | undefined; save(item: T): void; all(): IterableIterator<T> }
type Result<T, E = Error> = { ok: true; value: T } | { ok: false; error: E };
interface User { id: string; name: string; email?: string; roles: Set<'admin' | 'user'> }
class MemoryRepository<T extends { id: string }> implements Repository<T> {
  private readonly items = new Map<string, T>();
  find = (id: string) => this.items.get(id);
  save(item: T) { this.items.set(item.id, structuredClone(item)); }
  *all() { yield* this.items.values(); }
  get [Symbol.toStringTag]() { return `Repository(${this.items.size})`; }
}
const attempt = async <T,>(work: () => Promise<T>): Promise<Result<T>> => { try { return { ok: true, value: await work() }; } catch (error) { return { ok: false, error: error as Error }; } };
const users = new MemoryRepository<User>();
users.save({ id: '1', name: 'Ada', roles: new Set(['admin']) });
users.save({ id: '2', name: 'Bob', email: 'b@x.org', roles: new Set(['user']) });
(async () => {
  const result = await attempt(async () => { const user = users.find('3'); if (!user) throw new Error('no user 3'); return user; });
  console.log(result.ok ? result.value : result.error.message, `${users}`, [...users.all()].map(({ name, email = '-', ...rest }) => ({ name, email, rest })));
  const settled = await Promise.allSettled([1, 2, 3].map(async (n) => { if (n === 2) throw new RangeError(`no ${n}`); return n; }));
  console.log(settled.map((s) => (s.status === 'fulfilled' ? s.value : s.reason.message)), await Promise.any([Promise.reject(1), 2]));
  console.log(Object.groupBy([1, 2, 3, 4], (n) => (n % 2 ? 'odd' : 'even')), await Promise.race([new Promise((r) => setTimeout(r, 50, 'slow')), 'fast']));
})();
