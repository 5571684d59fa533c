# Makes a PDF invoice with reportlab, Chinese name included, and reads its text and table back.
# prints: Pages: 1
# prints: Customer found: 王小明
# prints: Table rows: 4
# makes: invoice.pdf
import pdfplumber
from pypdf import PdfReader
from reportlab.lib import colors
from reportlab.lib.pagesizes import A4
from reportlab.lib.styles import ParagraphStyle, getSampleStyleSheet
from reportlab.pdfbase import pdfmetrics
from reportlab.pdfbase.ttfonts import TTFont
from reportlab.platypus import Paragraph, SimpleDocTemplate, Spacer, Table, TableStyle

pdfmetrics.registerFont(TTFont("WenQuanYi", "/usr/share/fonts/truetype/wqy/wqy-microhei.ttc"))
styles = getSampleStyleSheet()
chinese = ParagraphStyle("chinese", parent=styles["Normal"], fontName="WenQuanYi", fontSize=11)

rows = [["Item", "Qty", "Price", "Sum"], ["Keyboard", 2, "49.00", "98.00"], ["Monitor", 1, "229.00", "229.00"], ["Total", "", "", "327.00"]]
table = Table(rows, colWidths=[200, 60, 80, 80])
table.setStyle(TableStyle([
    ("GRID", (0, 0), (-1, -1), 0.5, colors.grey),
    ("BACKGROUND", (0, 0), (-1, 0), colors.HexColor("#1f4e79")),
    ("TEXTCOLOR", (0, 0), (-1, 0), colors.white),
    ("ALIGN", (1, 1), (-1, -1), "RIGHT"),
]))
document = SimpleDocTemplate("/data/invoice.pdf", pagesize=A4, title="Invoice 1001")
document.build([Paragraph("Invoice 1001", styles["Title"]), Paragraph("客户: 王小明", chinese), Spacer(1, 20), table])

print("Pages:", len(PdfReader("/data/invoice.pdf").pages))
with pdfplumber.open("/data/invoice.pdf") as pdf:
    page = pdf.pages[0]
    print("Customer found:", "王小明" if "王小明" in page.extract_text() else page.extract_text())
    print("Table rows:", len(page.extract_table()))
