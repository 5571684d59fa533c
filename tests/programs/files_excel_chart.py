# Writes an Excel workbook with formats, formulas and a chart (XlsxWriter), and reads it with openpyxl.
# prints: Formula in C5: =SUM(C2:C4)
# prints: Charts: 1
# makes: budget.xlsx
import xlsxwriter
from openpyxl import load_workbook

rows = [("Rent", 1200, 1180), ("Food", 400, 452), ("Travel", 150, 98)]
workbook = xlsxwriter.Workbook("/data/budget.xlsx")
sheet = workbook.add_worksheet("Budget")
bold = workbook.add_format({"bold": True, "bg_color": "#DDEBF7", "border": 1})
money = workbook.add_format({"num_format": "#,##0.00 €"})
over = workbook.add_format({"font_color": "#C00000"})
sheet.write_row("A1", ["Category", "Planned", "Spent"], bold)
for index, row in enumerate(rows, start=1):
    sheet.write(index, 0, row[0])
    sheet.write_number(index, 1, row[1], money)
    sheet.write_number(index, 2, row[2], money)
last = len(rows) + 1
sheet.write(last, 0, "Total", bold)
sheet.write_formula(last, 1, f"=SUM(B2:B{last})", money)
sheet.write_formula(last, 2, f"=SUM(C2:C{last})", money)
sheet.conditional_format(f"C2:C{last}", {"type": "cell", "criteria": ">", "value": "B2", "format": over})
sheet.set_column("A:C", 16)
chart = workbook.add_chart({"type": "column"})
for column, name in ((1, "Planned"), (2, "Spent")):
    chart.add_series({"name": name, "categories": ["Budget", 1, 0, 3, 0], "values": ["Budget", 1, column, 3, column]})
sheet.insert_chart("E2", chart)
workbook.close()

back = load_workbook("/data/budget.xlsx")["Budget"]
print(f"Formula in C{last + 1}:", back.cell(last + 1, 3).value)
print("Charts:", len(back._charts))
