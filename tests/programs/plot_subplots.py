# Draws four kinds of charts in one figure and shows it with plt.show().
# prints: Axes drawn: 4
# makes: figure_1.png
import matplotlib.pyplot as plt
import numpy as np

x = np.linspace(0, 2 * np.pi, 200)
rng = np.random.default_rng(0)

fig, axes = plt.subplots(2, 2, figsize=(10, 8))
axes[0, 0].plot(x, np.sin(x), label="sin")
axes[0, 0].plot(x, np.cos(x), "--", label="cos")
axes[0, 0].legend()
axes[0, 1].hist(rng.normal(size=1000), bins=30, color="tab:orange", edgecolor="white")
axes[1, 0].scatter(rng.random(100), rng.random(100), c=rng.random(100), cmap="viridis")
axes[1, 1].pie([40, 30, 20, 10], labels=["A", "B", "C", "D"], autopct="%1.0f%%")
fig.suptitle("Four charts")
plt.tight_layout()
print("Axes drawn:", len(fig.axes))
plt.show()
