# SQLite: a file, memory, an uncommitted row, a connection left open.
import sqlite3, pandas as pd
c = sqlite3.connect('/data/x.db'); c.execute('create table t(a integer primary key, b text)')
c.executemany('insert into t(b) values (?)', [('x',), ('é',)]); c.commit()
print(c.execute('select * from t').fetchall(), pd.read_sql('select count(*) n from t', c))
with c: c.execute("insert into t(b) values ('kept')")
c.execute("insert into t(b) values ('lost')")
m = sqlite3.connect(':memory:'); m.row_factory = sqlite3.Row; print(tuple(m.execute('select 1 as one').fetchone()))
try: c.execute('selec')
except sqlite3.OperationalError as e: print(e)
