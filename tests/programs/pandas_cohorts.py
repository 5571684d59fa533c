# Makes a retention table of customers by the month of their first order.
# prints: Cohorts: 6, customers: 120
# prints: Retention after one month: 62%
import numpy as np
import pandas as pd

rng = np.random.default_rng(3)
orders = []
for customer in range(120):
    first = rng.integers(0, 6)
    for month in range(first, 6):
        if month == first or rng.random() < 0.6:
            orders.append({"customer": customer, "month": pd.Period("2025-01", "M") + int(month), "amount": round(float(rng.gamma(2, 30)), 2)})
df = pd.DataFrame(orders)

df["cohort"] = df.groupby("customer")["month"].transform("min")
df["age"] = (df["month"] - df["cohort"]).apply(lambda difference: difference.n)
table = df.groupby(["cohort", "age"])["customer"].nunique().unstack()
retention = table.div(table[0], axis=0)
print(retention.round(2).to_string(na_rep="-"))
print(f"Cohorts: {len(table)}, customers: {df['customer'].nunique()}")
print(f"Retention after one month: {table[1].sum() / table[0][:-1].sum():.0%}")
