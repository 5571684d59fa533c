// A first program for some languages. Each must run in the runner images without a network.

const python = `# Six random walks, told step by step and drawn at the end
import time
import numpy as np
import matplotlib.pyplot as plt

rng = np.random.default_rng(7)
walks = np.zeros((6, 1))
for step in range(1, 6):
    steps = rng.normal(size=(6, 60))
    walks = np.hstack([walks, walks[:, -1:] + steps.cumsum(axis=1)])
    print(f"step {step}: the spread is {walks[:, -1].std():.2f}", flush=True)
    time.sleep(0.15)

plt.figure(figsize=(9, 3), layout="tight")
plt.plot(walks.T, linewidth=1.4)
plt.savefig("/data/walks.png", dpi=100)
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

// The example of a language, or an empty text.
export const example = language => EXAMPLES.get(language) ?? ''
