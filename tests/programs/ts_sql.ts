// Keeps a small ledger in SQLite with node's own module: a transaction, a prepared statement, a report.
// prints: Balance of cash: 59.50
// prints: Rolled back: insufficient funds
// makes: ledger.db
import { existsSync, rmSync } from 'node:fs';
import { DatabaseSync } from 'node:sqlite';

if (existsSync('/data/ledger.db')) rmSync('/data/ledger.db');
const db = new DatabaseSync('/data/ledger.db');
db.exec(`CREATE TABLE entries (id INTEGER PRIMARY KEY, account TEXT NOT NULL, cents INTEGER NOT NULL)`);
const insert = db.prepare('INSERT INTO entries (account, cents) VALUES (?, ?)');
const balance = (account: string) => Number(db.prepare('SELECT coalesce(sum(cents), 0) AS cents FROM entries WHERE account = ?').get(account)!.cents);

function transfer(from: string, to: string, cents: number): void {
  db.exec('BEGIN');
  try {
    insert.run(from, -cents);
    insert.run(to, cents);
    if (balance(from) < 0) throw new Error('insufficient funds');
    db.exec('COMMIT');
  } catch (error) {
    db.exec('ROLLBACK');
    throw error;
  }
}

insert.run('cash', 10_000);
transfer('cash', 'groceries', 4_050);
try {
  transfer('cash', 'rent', 90_000);
} catch (error) {
  console.log('Rolled back:', (error as Error).message);
}
for (const { account, cents, n } of db.prepare('SELECT account, sum(cents) AS cents, count(*) AS n FROM entries GROUP BY account ORDER BY account').all() as { account: string; cents: number; n: number }[]) {
  console.log(`${account.padEnd(10)} ${n} entries ${(cents / 100).toFixed(2).padStart(8)}`);
}
console.log(`Balance of cash: ${(balance('cash') / 100).toFixed(2)}`);
db.close();
