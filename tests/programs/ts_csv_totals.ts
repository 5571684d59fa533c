// Parses a CSV with quoted fields, groups it by category, and writes the totals as CSV.
// prints: tools: 3 items, 164.40
// prints: Wrote 2 rows
// makes: totals.csv
import { writeFileSync } from 'node:fs';
import { parse } from 'csv-parse/sync';
import { stringify } from 'csv-stringify/sync';

interface Item {
  name: string;
  category: string;
  price: number;
  quantity: number;
}

const csv = `name,category,price,quantity
"Hammer, large",tools,24.90,2
Saw,tools,31.20,1
Nails,material,0.05,400
"Drill ""Pro""",tools,83.40,1
Glue,material,4.50,3
`;
const rows: Record<string, string>[] = parse(csv, { columns: true, skip_empty_lines: true });
const items: Item[] = rows.map((row) => ({ name: row.name, category: row.category, price: Number(row.price), quantity: Number(row.quantity) }));

const totals = new Map<string, { count: number; sum: number }>();
for (const { category, price, quantity } of items) {
  const total = totals.get(category) ?? { count: 0, sum: 0 };
  totals.set(category, { count: total.count + 1, sum: total.sum + price * quantity });
}
for (const [category, { count, sum }] of totals) console.log(`${category}: ${count} items, ${sum.toFixed(2)}`);
const output = stringify([...totals].map(([category, { count, sum }]) => ({ category, count, sum: sum.toFixed(2) })), { header: true });
writeFileSync('/data/totals.csv', output);
console.log(`Wrote ${totals.size} rows`);
