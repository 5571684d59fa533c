# Answers the same question with a lazy polars query, and checks it against DuckDB.
# prints: Polars and DuckDB agree: True
# prints: sensor-2: 250 readings, mean 19.95
# makes: readings.parquet
import duckdb
import polars as pl

readings = pl.DataFrame({
    "sensor": [f"sensor-{n % 4}" for n in range(1000)],
    "hour": [n // 4 % 24 for n in range(1000)],
    "value": [20 + ((n * 7919) % 101 - 50) / 10 for n in range(1000)],
})
readings.write_parquet("/data/readings.parquet")

result = (
    pl.scan_parquet("/data/readings.parquet")
    .filter(pl.col("hour").is_between(0, 23))
    .group_by("sensor")
    .agg(pl.len().alias("n"), pl.col("value").mean().round(2).alias("mean"))
    .sort("sensor")
    .collect()
)
for sensor, n, mean in result.iter_rows():
    print(f"{sensor}: {n} readings, mean {mean}")

same = duckdb.sql("SELECT sensor, count(*) AS n, round(avg(value), 2) AS mean FROM '/data/readings.parquet' GROUP BY sensor ORDER BY sensor").fetchall()
print("Polars and DuckDB agree:", same == [tuple(row) for row in result.rows()])
