# Seaborn on a frame.
import seaborn as sns, pandas as pd, numpy as np, matplotlib.pyplot as plt
df = pd.DataFrame({'x': np.arange(30), 'y': np.arange(30) ** 1.5, 'k': list('abc') * 10})
before = dict(plt.rcParams)
sns.set_theme(style='whitegrid')
sns.scatterplot(df, x='x', y='y', hue='k'); plt.savefig('/data/s.png', dpi=50); plt.close()
sns.heatmap(df[['x', 'y']].corr(), annot=True); plt.savefig('/data/h.png', dpi=50)
g = sns.FacetGrid(df, col='k'); g.map(sns.histplot, 'y'); g.savefig('/data/g.png', dpi=40)
sns.boxplot(df, x='k', y='y', palette='Set2')
print(sorted(k for k in before if before[k] != plt.rcParams[k])[:5])
sns.load_dataset('tips')
