// A first program for some languages, and the files that it reads. Each must run in the runner images without a network.

const MONTHS = [31, 34, 38, 45, 52, 61, 66, 63, 54, 47, 40, 58]
const REGIONS = [['North', 1, 41.5], ['South', 1.35, 38], ['West', 0.8, 47.25]]

// Invented sales: a line for each month and region.
const sales = ['month,region,units,revenue']
for (const [month, base] of MONTHS.entries()) {
  for (const [region, share, price] of REGIONS) {
    const units = Math.round(base * share * (1 + 0.015 * month))
    sales.push(`2025-${String(month + 1).padStart(2, '0')}-01,${region},${units},${(units * price).toFixed(2)}`)
  }
}

const python = `# A year of sales: revenue by region, and a chart
import pandas as pd
import matplotlib.pyplot as plt

sales = pd.read_csv("/data/sales.csv", parse_dates=["month"])
total = sales["revenue"].sum()
print(f"{len(sales)} rows, revenue {total:,.0f}\\n")

regions = sales.groupby("region")[["units", "revenue"]].sum()
print(regions.sort_values("revenue", ascending=False))
regions.to_csv("/data/regions.csv")

months = sales.pivot_table("revenue", "month", "region")
months.plot.area(figsize=(8, 3.6), linewidth=0, xlabel="")
plt.title("Revenue by month")
plt.tight_layout()
plt.savefig("/data/sales.png", dpi=110)
`

const typescript = `// What a stable orders, added up
import { writeFileSync } from "node:fs";

type Order = { item: string; pieces: number; price: number };

const orders: Order[] = [
  { item: "hay", pieces: 12, price: 4.5 },
  { item: "oats", pieces: 3, price: 19.9 },
  { item: "fence posts", pieces: 40, price: 2.25 },
];

let total = 0;
for (const { item, pieces, price } of orders) {
  total += pieces * price;
  console.log(\`\${item.padEnd(12)} \${(pieces * price).toFixed(2).padStart(8)}\`);
  await new Promise((done) => setTimeout(done, 200));
}
console.log(\`\${"total".padEnd(12)} \${total.toFixed(2).padStart(8)}\`);
writeFileSync("/data/orders.json", JSON.stringify({ orders, total }, null, 2));
`

const sh = `# Both streams, a line at a time, and a file
for i in 1 2 3 4 5; do
  echo "line $i of 5"
  sleep 0.2
done
echo "this goes to stderr" >&2
date > /data/when.txt
ls -l /data
`

const EXAMPLES = new Map([['python', python], ['typescript', typescript], ['sh', sh]])
const SAMPLES = new Map([['python', { name: 'sales.csv', text: `${sales.join('\n')}\n` }]])

const firstLine = text => text.slice(0, text.indexOf('\n'))

// The example of a language, or an empty text.
export const example = language => EXAMPLES.get(language) ?? ''

// The file that this program reads if it is the example, or was made from it; otherwise null.
export function sampleOf(language, code) {
  const sample = SAMPLES.get(language)
  if (!sample || !code.startsWith(firstLine(example(language))) || !code.includes(`/data/${sample.name}`)) return null
  return sample
}
