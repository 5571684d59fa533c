# Draws pictures, makes thumbnails of them, adds a caption, and joins them to a contact sheet and a GIF.
# prints: Contact sheet: 660 x 240
# prints: Frames in the GIF: 3
# makes: sheet.jpg
# makes: animation.gif
from pathlib import Path

from PIL import Image, ImageDraw, ImageFilter, ImageFont

font = ImageFont.truetype("DejaVuSans.ttf", 16)
folder = Path("/tmp/pictures")
folder.mkdir(exist_ok=True)
for number, color in enumerate(["#d62728", "#2ca02c", "#1f77b4"]):
    image = Image.new("RGB", (800, 600), "white")
    draw = ImageDraw.Draw(image)
    for radius in range(280, 0, -40):
        box = [400 - radius, 300 - radius, 400 + radius, 300 + radius]
        draw.ellipse(box, fill=color if radius // 40 % 2 else "white")
    image.filter(ImageFilter.GaussianBlur(2)).save(folder / f"{number}.png")

sheet = Image.new("RGB", (660, 240), "#f0f0f0")
frames = []
for index, path in enumerate(sorted(folder.glob("*.png"))):
    with Image.open(path) as image:
        thumbnail = image.convert("RGB")
        thumbnail.thumbnail((200, 200))
        sheet.paste(thumbnail, (15 + index * 215, 20))
        ImageDraw.Draw(sheet).text((15 + index * 215, 190), path.name, font=font, fill="black")
        frames.append(thumbnail)
sheet.save("/data/sheet.jpg", quality=85)
frames[0].save("/data/animation.gif", save_all=True, append_images=frames[1:], duration=300, loop=0)

print(f"Contact sheet: {sheet.width} x {sheet.height}")
with Image.open("/data/animation.gif") as gif:
    print("Frames in the GIF:", gif.n_frames)
