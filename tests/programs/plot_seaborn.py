# Draws a heat map of correlations and a box plot with seaborn, as PNG and SVG.
# prints: Strongest correlation: weight and height (0.95)
# makes: correlations.png
# makes: boxes.svg
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns

rng = np.random.default_rng(5)
height = rng.normal(170, 10, 300)
df = pd.DataFrame({"height": height, "weight": 0.9 * height - 85 + rng.normal(0, 3, 300), "age": rng.integers(18, 80, 300), "group": rng.choice(["a", "b", "c"], 300)})

sns.set_theme(style="whitegrid")
correlations = df.corr(numeric_only=True)
sns.heatmap(correlations, annot=True, fmt=".2f", cmap="coolwarm", vmin=-1, vmax=1)
plt.savefig("/data/correlations.png", dpi=120, bbox_inches="tight")
plt.close()

sns.boxplot(data=df, x="group", y="height", hue="group")
plt.savefig("/data/boxes.svg")
plt.close()

pairs = correlations.where(np.tril(np.ones(correlations.shape, bool), -1)).stack()
first, second = pairs.abs().idxmax()
print(f"Strongest correlation: {first} and {second} ({pairs.max():.2f})")
