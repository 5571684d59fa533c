// Makes a PDF of two pages with pdf-lib, adds page numbers, and reads its title back.
// prints: Pages: 2, title: Certificate
// makes: certificate.pdf
import { readFile, writeFile } from 'node:fs/promises';
import { PDFDocument, StandardFonts, rgb } from 'pdf-lib';

const pdf = await PDFDocument.create();
pdf.setTitle('Certificate');
const font = await pdf.embedFont(StandardFonts.TimesRomanBold);
for (const name of ['Ada Lovelace', 'Grace Hopper']) {
  const page = pdf.addPage([595, 420]);
  const { width, height } = page.getSize();
  page.drawRectangle({ x: 20, y: 20, width: width - 40, height: height - 40, borderColor: rgb(0.6, 0.5, 0.2), borderWidth: 4 });
  const center = (text: string, size: number, y: number) =>
    page.drawText(text, { x: (width - font.widthOfTextAtSize(text, size)) / 2, y, size, font, color: rgb(0.1, 0.1, 0.3) });
  center('Certificate', 40, height - 120);
  center(`awarded to ${name}`, 24, height - 200);
}
pdf.getPages().forEach((page, index) => page.drawText(`${index + 1} / ${pdf.getPageCount()}`, { x: 540, y: 30, size: 9 }));
await writeFile('/data/certificate.pdf', await pdf.save());

const back = await PDFDocument.load(await readFile('/data/certificate.pdf'));
console.log(`Pages: ${back.getPageCount()}, title: ${back.getTitle()}`);
