// A task as a model is given one: read data, work it out, write a report.
import { promises as fs } from 'fs';
import * as path from 'path';
interface Employee { name: string; department: string; salary: number; hired: string }
interface Summary { department: string; headcount: number; average: number; longest: Employee }
const OUT = path.join(process.cwd(), 'report');
async function load(file: string): Promise<Employee[]> { return JSON.parse(await fs.readFile(file, 'utf-8')) as Employee[]; }
function summarize(staff: readonly Employee[]): Summary[] {
  const groups = new Map<string, Employee[]>();
  for (const person of staff) (groups.get(person.department) ?? groups.set(person.department, []).get(person.department)!).push(person);
  return [...groups].map(([department, people]) => ({
    department, headcount: people.length,
    average: Math.round(people.reduce((sum, { salary }) => sum + salary, 0) / people.length * 100) / 100,
    longest: people.toSorted((a, b) => +new Date(a.hired) - +new Date(b.hired))[0]!,
  })).sort((a, b) => b.average - a.average);
}
async function main() {
  const random = ((seed: number) => () => (seed = (seed * 1103515245 + 12345) & 0x7fffffff) / 0x7fffffff)(42);
  const staff: Employee[] = Array.from({ length: 50 }, (_, i) => ({ name: `Employee ${i}`, department: ['Sales', 'Engineering', 'Support'][i % 3]!, salary: 40000 + Math.floor(random() * 60000), hired: new Date(Date.UTC(2010 + (i % 12), i % 12, 1 + (i % 28))).toISOString() }));
  await fs.writeFile('staff.json', JSON.stringify(staff));
  const summary = summarize(await load('staff.json'));
  await fs.mkdir(OUT, { recursive: true });
  await Promise.all(summary.map((s) => fs.writeFile(path.join(OUT, `${s.department.toLowerCase()}.md`), `# ${s.department}\n\n- headcount: ${s.headcount}\n- average: ${s.average.toLocaleString('en-US', { style: 'currency', currency: 'USD' })}\n- longest: ${s.longest.name} (${s.longest.hired.slice(0, 10)})\n`)));
  console.table(summary.map(({ longest, ...rest }) => ({ ...rest, longest: longest.name })));
  console.log((await fs.readdir(OUT)).sort());
}
main().catch((err: unknown) => { console.error('failed:', err instanceof Error ? err.message : err); process.exitCode = 1; });
