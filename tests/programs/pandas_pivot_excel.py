# Builds a pivot table and writes it to an Excel file of two sheets, then reads it back.
# prints: Sheets: ['Data', 'Pivot']
# prints: Total in the pivot: 960
# makes: report.xlsx
import itertools

import pandas as pd

rows = [
    {"year": year, "quarter": f"Q{quarter}", "team": team, "tickets": (year - 2020) * 7 + quarter * 3 + len(team)}
    for year, quarter, team in itertools.product([2023, 2024, 2025], [1, 2, 3, 4], ["web", "mobile"])
]
df = pd.DataFrame(rows)
pivot = df.pivot_table(index="year", columns="quarter", values="tickets", aggfunc="sum", margins=True, margins_name="Total")

with pd.ExcelWriter("/data/report.xlsx", engine="openpyxl") as writer:
    df.to_excel(writer, sheet_name="Data", index=False)
    pivot.to_excel(writer, sheet_name="Pivot")

book = pd.ExcelFile("/data/report.xlsx")
print("Sheets:", book.sheet_names)
back = book.parse("Pivot", index_col=0)
print(back.to_string())
print("Total in the pivot:", int(back.loc["Total", "Total"]))
