# Writes a Word document with a heading, a table and a picture, and reads it back.
# prints: Paragraphs: 5, tables: 1, pictures: 1
# prints: Total: 1,430.00
# makes: offer.docx
import io

from docx import Document
from docx.enum.text import WD_ALIGN_PARAGRAPH
from docx.shared import Inches, Pt
from PIL import Image, ImageDraw

items = [("Consulting", 8, 120.0), ("Travel", 1, 350.0), ("Printing", 2, 60.0)]

logo = Image.new("RGB", (200, 60), "#1f4e79")
ImageDraw.Draw(logo).text((20, 20), "ACME", fill="white")
picture = io.BytesIO()
logo.save(picture, "PNG")
picture.seek(0)

document = Document()
document.add_picture(picture, width=Inches(1.5))
document.add_heading("Offer 2026-014", level=1)
paragraph = document.add_paragraph("Dear Ms. Okafor, please find our offer below.")
paragraph.runs[0].font.size = Pt(11)
table = document.add_table(rows=1, cols=4)
table.style = "Light Grid Accent 1"
for cell, title in zip(table.rows[0].cells, ["Item", "Quantity", "Price", "Sum"]):
    cell.text = title
for name, quantity, price in items:
    cells = table.add_row().cells
    for cell, text in zip(cells, [name, str(quantity), f"{price:.2f}", f"{quantity * price:.2f}"]):
        cell.text = text
total = document.add_paragraph(f"Total: {sum(q * p for _, q, p in items):,.2f}")
total.alignment = WD_ALIGN_PARAGRAPH.RIGHT
document.add_paragraph("Kind regards", style="Intense Quote")
document.save("/data/offer.docx")

back = Document("/data/offer.docx")
print(f"Paragraphs: {len(back.paragraphs)}, tables: {len(back.tables)}, pictures: {len(back.inline_shapes)}")
print(next(p.text for p in back.paragraphs if p.text.startswith("Total")))
