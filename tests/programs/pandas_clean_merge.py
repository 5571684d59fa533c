# Cleans a messy table (missing values, duplicates, wrong types) and merges it with another one.
# prints: Rows: 7 -> 5 after cleaning
# prints: Engineering  2  88000.0
# makes: staff.csv
import numpy as np
import pandas as pd

staff = pd.DataFrame({
    "name": ["  Ada Lovelace", "Alan Turing ", "Grace Hopper", "Grace Hopper", "Edsger Dijkstra", None, "Barbara Liskov"],
    "department_id": ["1", "1", "2", "2", "3", "1", "2"],
    "salary": ["91,000", "85,000", "78500", "78500", np.nan, "50000", "101,000"],
    "started": ["2019-04-01", "2020/07/15", "March 3, 2018", "March 3, 2018", "2021-01-10", "2022-02-02", "2017-11-30"],
})
departments = pd.DataFrame({"department_id": [1, 2, 3], "department": ["Engineering", "Research", "Teaching"]})

before = len(staff)
staff = staff.dropna(subset=["name"]).drop_duplicates()
staff["name"] = staff["name"].str.strip()
staff["department_id"] = staff["department_id"].astype(int)
staff["salary"] = pd.to_numeric(staff["salary"].str.replace(",", ""))
staff["salary"] = staff["salary"].fillna(staff["salary"].median())
staff["started"] = pd.to_datetime(staff["started"], format="mixed")
print(f"Rows: {before} -> {len(staff)} after cleaning")

merged = staff.merge(departments, on="department_id", how="left").drop(columns="department_id")
for department, group in merged.groupby("department"):
    print(f"{department:<11}  {len(group)}  {group['salary'].mean():.1f}")
merged.sort_values("started").to_csv("/data/staff.csv", index=False)
