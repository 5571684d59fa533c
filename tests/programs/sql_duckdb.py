# Asks CSV files in /data with SQL: a join, a window function, and a result as parquet.
# prints: ('books', 'Dune', 3, 1)
# prints: Rows in best.parquet: 2
# makes: best.parquet
import duckdb

with open("/data/products.csv", "w") as file:
    file.write("id,name,category\n1,Dune,books\n2,Emma,books\n3,Go,games\n4,Chess,games\n")
with open("/data/sales.csv", "w") as file:
    file.write("product_id,quantity\n1,2\n1,1\n2,1\n3,5\n4,4\n4,4\n")

con = duckdb.connect()
best = con.sql("""
    WITH sold AS (
        SELECT p.category, p.name, sum(s.quantity)::INT AS quantity
        FROM read_csv_auto('/data/sales.csv') s JOIN '/data/products.csv' p ON p.id = s.product_id
        GROUP BY ALL
    )
    SELECT *, rank() OVER (PARTITION BY category ORDER BY quantity DESC) AS place
    FROM sold QUALIFY place = 1 ORDER BY category
""")
for row in best.fetchall():
    print(row)
best.write_parquet("/data/best.parquet")
print("Rows in best.parquet:", con.sql("SELECT count(*) FROM '/data/best.parquet'").fetchone()[0])
print(best.df().to_string(index=False))
