// Makes a styled Excel workbook with exceljs, reads it back with SheetJS, and sums a column.
// prints: Sheets: Invoices
// prints: Sum: 1234.5
// makes: invoices.xlsx
import ExcelJS from 'exceljs';
import * as XLSX from 'xlsx';
import { readFileSync } from 'node:fs';

const invoices = [
  { number: 'R-1', customer: 'Núñez', amount: 820, due: new Date('2026-04-01') },
  { number: 'R-2', customer: '山田', amount: 314.5, due: new Date('2026-04-15') },
  { number: 'R-3', customer: 'Øst', amount: 100, due: new Date('2026-05-01') },
];

const workbook = new ExcelJS.Workbook();
const sheet = workbook.addWorksheet('Invoices', { views: [{ state: 'frozen', ySplit: 1 }] });
sheet.columns = [
  { header: 'Number', key: 'number', width: 12 },
  { header: 'Customer', key: 'customer', width: 20 },
  { header: 'Amount', key: 'amount', width: 14, style: { numFmt: '#,##0.00' } },
  { header: 'Due', key: 'due', width: 14, style: { numFmt: 'yyyy-mm-dd' } },
];
sheet.addRows(invoices);
sheet.getRow(1).font = { bold: true };
sheet.autoFilter = 'A1:D1';
await workbook.xlsx.writeFile('/data/invoices.xlsx');

const back = XLSX.read(readFileSync('/data/invoices.xlsx'));
console.log('Sheets:', back.SheetNames.join());
const rows = XLSX.utils.sheet_to_json<{ Customer: string; Amount: number }>(back.Sheets.Invoices);
console.log('Customers:', rows.map((row) => row.Customer).join(', '));
console.log('Sum:', rows.reduce((sum, row) => sum + row.Amount, 0));
