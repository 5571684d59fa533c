# Groups sales by region with pandas and saves the totals as CSV.
# prints: Best region: North with 46,376.22
# prints: West       4    152  15,270.0     0.18
# makes: totals.csv
import io

import pandas as pd

csv = """region,product,units,price
North,Desk,120,249.0
North,Lamp,310,39.9
South,Desk,45,249.0
South,Chair,80,129.5
West,Lamp,96,41.5
West,Desk,36,249.0
West,Chair,18,129.0
North,Chair,23,179.4444
West,Lamp,2,0.0
"""
df = pd.read_csv(io.StringIO(csv))
df["revenue"] = df["units"] * df["price"]

summary = (
    df.groupby("region")
    .agg(products=("product", "count"), units=("units", "sum"), revenue=("revenue", "sum"))
    .sort_values("revenue", ascending=False)
)
summary["share"] = (summary["revenue"] / summary["revenue"].sum()).round(2)
for region, row in summary.iterrows():
    print(f"{region:<9} {int(row.products):>2} {int(row.units):>6} {row.revenue:>9,.1f} {row['share']:>8.2f}")
summary.to_csv("/data/totals.csv")
best = summary.index[0]
print(f"Best region: {best} with {summary.loc[best, 'revenue']:,.2f}")
