// csv-parser and papaparse over a file that the program makes.
import * as fs from 'fs';
import csv from 'csv-parser';
import Papa from 'papaparse';
interface Sale { region: string; amount: string }
fs.writeFileSync('sales.csv', 'region,amount\nnorth,10.5\nsouth,20\n"east, far",7\nnorth,2\n');
const rows: Sale[] = [];
fs.createReadStream('sales.csv').pipe(csv()).on('data', (row: Sale) => rows.push(row)).on('end', () => {
  const totals = rows.reduce<Record<string, number>>((sum, { region, amount }) => ({ ...sum, [region]: (sum[region] ?? 0) + Number(amount) }), {});
  console.log(totals, rows[2]);
  const parsed = Papa.parse<Sale>(fs.readFileSync('sales.csv', 'utf8'), { header: true, dynamicTyping: true, skipEmptyLines: true });
  console.log(parsed.data.length, parsed.errors, parsed.meta.fields);
  fs.writeFileSync('totals.csv', Papa.unparse(Object.entries(totals).map(([region, total]) => ({ region, total }))));
  console.log(Object.keys(require.cache).filter((file) => file.startsWith('/node_modules')).length);
});
