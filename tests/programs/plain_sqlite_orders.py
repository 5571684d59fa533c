# Fills a SQLite database and asks it for running totals with a window function.
# prints: Ada       2026-01-20    75.00   195.50
# prints: Best customer: Ada (3 orders, 215.50)
# makes: orders.db
import os
import sqlite3

if os.path.exists("/data/orders.db"):
    os.remove("/data/orders.db")
connection = sqlite3.connect("/data/orders.db")
cursor = connection.cursor()
cursor.execute("CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT NOT NULL)")
cursor.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, customer_id INTEGER REFERENCES customers(id), day TEXT, amount REAL)")
cursor.executemany("INSERT INTO customers VALUES (?, ?)", [(1, "Ada"), (2, "Grace")])
cursor.executemany(
    "INSERT INTO orders (customer_id, day, amount) VALUES (?, ?, ?)",
    [(1, "2026-01-05", 120.5), (2, "2026-01-07", 60.0), (1, "2026-01-20", 75.0), (2, "2026-02-01", 99.9), (1, "2026-02-03", 20.0)],
)
connection.commit()

query = """
    SELECT c.name, o.day, o.amount,
           SUM(o.amount) OVER (PARTITION BY c.id ORDER BY o.day) AS running
    FROM orders o JOIN customers c ON c.id = o.customer_id
    ORDER BY c.name, o.day
"""
for name, day, amount, running in cursor.execute(query):
    print(f"{name:<9} {day} {amount:>8.2f} {running:>8.2f}")

cursor.execute("SELECT c.name, COUNT(*), SUM(amount) FROM orders o JOIN customers c ON c.id = o.customer_id GROUP BY c.id ORDER BY 3 DESC LIMIT 1")
name, orders, total = cursor.fetchone()
print(f"Best customer: {name} ({orders} orders, {total:.2f})")
connection.close()
