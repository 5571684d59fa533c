# Draws a bar chart whose title and labels are Chinese, Japanese and Arabic, with an emoji.
# prints: Saved chart.png (900 x 500)
# makes: chart.png
import warnings

import matplotlib.pyplot as plt
from PIL import Image

warnings.simplefilter("error")  # a missing glyph would be a warning, and a box in the picture
plt.rcParams["font.sans-serif"] = ["SimHei", "Noto Sans CJK SC", "DejaVu Sans"]
plt.rcParams["axes.unicode_minus"] = False

cities = ["北京", "上海", "東京", "서울", "القاهرة"]
visitors = [21.5, 24.9, 13.9, 9.4, 10.1]

fig, ax = plt.subplots(figsize=(9, 5), dpi=100)
bars = ax.bar(cities, visitors, color="#4c78a8")
ax.bar_label(bars, fmt="%.1f")
ax.set_title("城市人口(百万)📈")
ax.set_ylabel("人口")
fig.savefig("/data/chart.png")
with Image.open("/data/chart.png") as image:
    print(f"Saved chart.png ({image.width} x {image.height})")
