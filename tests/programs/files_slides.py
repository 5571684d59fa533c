# Makes a presentation of three slides, with bullets, a chart and a table.
# prints: Slides: 3
# prints: Slide 2: Revenue by quarter
# makes: review.pptx
from pptx import Presentation
from pptx.chart.data import CategoryChartData
from pptx.enum.chart import XL_CHART_TYPE
from pptx.util import Inches

presentation = Presentation()
slide = presentation.slides.add_slide(presentation.slide_layouts[1])
slide.shapes.title.text = "Quarterly review"
body = slide.placeholders[1].text_frame
body.text = "Revenue grew in every quarter"
for point in ("Two new markets", "Returns fell by a third"):
    body.add_paragraph().text = point

slide = presentation.slides.add_slide(presentation.slide_layouts[5])
slide.shapes.title.text = "Revenue by quarter"
data = CategoryChartData()
data.categories = ["Q1", "Q2", "Q3", "Q4"]
data.add_series("2025", (12.1, 13.4, 15.0, 17.9))
slide.shapes.add_chart(XL_CHART_TYPE.COLUMN_CLUSTERED, Inches(1), Inches(1.5), Inches(8), Inches(5), data)

slide = presentation.slides.add_slide(presentation.slide_layouts[5])
slide.shapes.title.text = "Next steps"
table = slide.shapes.add_table(2, 2, Inches(1), Inches(2), Inches(8), Inches(1)).table
for row, cells in enumerate([("What", "Who"), ("Open the Oslo office", "Ingrid")]):
    for column, text in enumerate(cells):
        table.cell(row, column).text = text
presentation.save("/data/review.pptx")

back = Presentation("/data/review.pptx")
print("Slides:", len(back.slides))
for number, slide in enumerate(back.slides, 1):
    print(f"Slide {number}: {slide.shapes.title.text}")
