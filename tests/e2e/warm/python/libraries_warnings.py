# What libraries warn of, with the program's line.
import pandas as pd, numpy as np, matplotlib.pyplot as plt
pd.DataFrame({'a': [1]}).groupby(lambda x: x, axis=0)
np.float64(1) / 0
pd.date_range('2024', periods=2, freq='M')
pd.Series(dtype=object).replace('a', 'b')
plt.subplots()[1].set_xticklabels(['a'])
np.warnings
