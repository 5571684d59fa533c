# Parquet and Arrow.
import pandas as pd, pyarrow as pa, pyarrow.parquet as pq, threading
df = pd.DataFrame({'a': [1, 2, None], 's': ['x', None, 'z'], 'd': pd.to_datetime(['2024-01-01'] * 3)})
df.to_parquet('/data/t.parquet'); print(pd.read_parquet('/data/t.parquet').equals(df))
t = pq.read_table('/data/t.parquet'); print(t.schema.names, t.num_rows, pa.compute.sum(t['a']) if hasattr(pa, 'compute') else None)
w = pq.ParquetWriter('/data/u.parquet', t.schema); w.write_table(t); w.close()
df.to_feather('/data/t.feather'); print(pd.read_feather('/data/t.feather').shape, pa.array([1, None]).null_count)
