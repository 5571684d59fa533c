# Styles, rc settings, many figures, a colour bar, dates, an animation's frames.
import matplotlib; matplotlib.use('Agg')
import matplotlib.pyplot as plt, matplotlib.dates as mdates, datetime as dt, warnings
plt.style.use('ggplot'); plt.rcParams['figure.dpi'] = 50
f, ax = plt.subplots(); im = ax.imshow([[1, 2], [3, 4]]); f.colorbar(im); f.savefig('/data/im.png')
f, ax = plt.subplots(); ax.plot([dt.date(2024, 1, d) for d in (1, 2, 3)], [1, 2, 3]); ax.xaxis.set_major_formatter(mdates.DateFormatter('%d %b')); f.autofmt_xdate(); f.savefig('/data/dates.png')
for i in range(22): plt.figure()
plt.close('all')
plt.title('日本'); plt.savefig('/data/missing-glyph.png')
print(plt.style.available[:3], 'viridis' in plt.colormaps())
