# A workbook written and read, by hand and through pandas.
import openpyxl, pandas as pd
from openpyxl.styles import Font
from openpyxl.chart import BarChart, Reference
wb = openpyxl.Workbook(); ws = wb.active; ws.title = 'Data'
for row in [['name', 'n'], ['a', 1], ['b', 2]]: ws.append(row)
ws['A1'].font = Font(bold=True); ws['C2'] = '=SUM(B2:B3)'
c = BarChart(); c.add_data(Reference(ws, min_col=2, min_row=1, max_row=3), titles_from_data=True); ws.add_chart(c, 'E2')
wb.save('/tmp/t.xlsx')
print([[x.value for x in r] for r in openpyxl.load_workbook('/tmp/t.xlsx')['Data'].iter_rows()])
print(pd.read_excel('/tmp/t.xlsx', sheet_name=None)['Data'].head())
with pd.ExcelWriter('/tmp/u.xlsx') as w: pd.DataFrame({'a': [1]}).to_excel(w, sheet_name='S', index=False)
print(pd.ExcelFile('/tmp/u.xlsx').sheet_names)
pd.read_excel('/data/missing.xlsx')
