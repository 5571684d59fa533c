// Decorators with metadata, as frameworks use them.
const store = new Map<any, Record<string, any>>();
(Reflect as any).metadata = (key: string, value: any) => (target: any, property?: string) => {
  const all = store.get(target) ?? {}; all[`${property}:${key}`] = Array.isArray(value) ? value.map((v) => v?.name) : value?.name; store.set(target, all);
};
function Injectable(): ClassDecorator { return (target) => console.log('class', target.name); }
function Log(target: any, key: string, descriptor: PropertyDescriptor) {
  const inner = descriptor.value;
  descriptor.value = function (...given: unknown[]) { console.log(`${key}(${given.join()})`); return inner.apply(this, given); };
}
const Min = (least: number) => (target: any, key: string) => console.log('property', key, least);
const Param = (target: any, key: string | undefined, index: number) => console.log('parameter', key, index);
class Database { url = 'db' }
@Injectable()
class Service {
  @Min(3) name: string = 'svc';
  constructor(@Param private readonly db: Database) {}
  @Log find(id: number, flags?: boolean): Promise<string> { return Promise.resolve(`${this.db.url}:${id}`); }
  @Log static make(): Service { return new Service(new Database()); }
}
const service = Service.make();
service.find(4).then(console.log);
console.log(service.name, [...store.values()]);
