# A figure with several axes, saved.
import matplotlib, matplotlib.pyplot as plt, numpy as np, hashlib
print(matplotlib.get_backend(), matplotlib.rcParams['backend'], plt.get_fignums(), plt.isinteractive())
x = np.linspace(0, 10, 200)
fig, axes = plt.subplots(2, 2, figsize=(8, 6))
axes[0, 0].plot(x, np.sin(x), label=r'$\sin(x)$'); axes[0, 0].legend(); axes[0, 0].set_title('é → title')
axes[0, 1].bar(['a', 'b', 'c'], [1, 3, 2]); axes[1, 0].scatter(x, np.cos(x), c=x, cmap='viridis'); axes[1, 1].hist(np.sin(x), bins=20); axes[1, 1].set_yscale('log')
fig.suptitle('all'); fig.tight_layout(); fig.savefig('/data/chart.png', dpi=60, metadata={'Software': None})
print(fig.number, plt.get_fignums(), hashlib.sha1(open('/data/chart.png', 'rb').read()).hexdigest())
plt.figure(); plt.pie([1, 2]); plt.savefig('/data/pie.png')
plt.show()
print(len(plt.get_fignums()), plt.gcf().number, matplotlib.rcParams['font.family'], sorted(k for k in matplotlib.rcParams if matplotlib.rcParams[k] != matplotlib.rcParamsDefault[k]))
plt.plot([1, 2], [1, 2, 3])
