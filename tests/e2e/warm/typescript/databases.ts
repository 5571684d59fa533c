// pg and postgres where there is no database.
import pg, { Pool, Client } from 'pg';
import postgres from 'postgres';
const client = new Client({ host: '127.0.0.1', port: 5432, user: 'u', password: 'p', database: 'd' });
try { await client.connect(); } catch (error: any) { console.log(error.code, error.message); }
const pool = new Pool({ connectionString: 'postgres://u:p@127.0.0.1:1/d', connectionTimeoutMillis: 30_000 });
await pool.query('select $1::int as n', [1]).catch((error) => console.log(error.code));
await pool.end();
const sql = postgres('postgres://u:p@127.0.0.1:1/d', { connect_timeout: 30, max: 1 });
try { await sql`select ${1} as n`; } catch (error: any) { console.log(error.code); }
await sql.end({ timeout: 1 });
console.log(pg.types.getTypeParser(20)('12'), typeof pg.defaults.port, pg.escapeIdentifier('a"b'));
