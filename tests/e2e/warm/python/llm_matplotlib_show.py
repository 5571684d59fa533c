# Figures that nobody saves: shown, left open, changed after they were saved, and in the way of a file.
import matplotlib.pyplot as plt, os
plt.plot([1, 2]); plt.show(); print(plt.get_fignums(), sorted(os.listdir('/data')))
open('/data/figure_2.png', 'w').write('taken')
fig, ax = plt.subplots(); ax.bar(['a'], [1]); fig.savefig('/data/mine.png'); plt.show(block=False); print(sorted(os.listdir('/data')))
fig, ax = plt.subplots(); ax.bar(['a'], [1]); fig.savefig('/data/mine.png'); ax.set_title('changed'); plt.show(); print(sorted(os.listdir('/data')))
plt.figure(); plt.show(); plt.figure(); plt.hist([1, 1, 2]); plt.close(); print(sorted(os.listdir('/data')))
pid = os.fork()
if not pid: raise SystemExit(0)
os.waitpid(pid, 0); plt.plot([3]); plt.figure(); plt.plot([4]); raise SystemExit(3)
