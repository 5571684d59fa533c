# A PDF made and read.
from reportlab.lib.pagesizes import A4
from reportlab.platypus import SimpleDocTemplate, Paragraph, Table
from reportlab.lib.styles import getSampleStyleSheet
from pypdf import PdfReader, PdfWriter
SimpleDocTemplate('/data/r.pdf', pagesize=A4, invariant=1).build([Paragraph('Hello <b>world</b>', getSampleStyleSheet()['Title']), Table([[1, 2], [3, 4]])])
r = PdfReader('/data/r.pdf'); print(len(r.pages), r.pages[0].extract_text().split(), r.metadata.producer is not None)
import warnings; warnings.simplefilter('ignore')
import PyPDF2; print(len(PyPDF2.PdfReader('/data/r.pdf').pages))
