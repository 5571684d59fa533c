# Images.
from PIL import Image, ImageDraw, ImageFont, ImageFilter
import io, hashlib
im = Image.new('RGB', (80, 40), 'white'); d = ImageDraw.Draw(im)
d.text((5, 5), 'Hi é', font=ImageFont.truetype('DejaVuSans.ttf', 14), fill='black'); d.rectangle([40, 10, 60, 30], outline='red')
im = im.filter(ImageFilter.BLUR).rotate(5).resize((40, 20)); im.save('/data/i.png'); im.save('/data/i.jpg', quality=80); im.convert('L').save('/data/i.gif')
print(Image.open('/data/i.png').size, Image.open('/data/i.jpg').format, hashlib.sha1(im.tobytes()).hexdigest(), im.getpixel((3, 3)))
open('/data/no.png', 'wb').write(b'no image'); Image.open('/data/no.png')
