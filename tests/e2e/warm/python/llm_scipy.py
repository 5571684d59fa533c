# Statistics, optimisation, interpolation.
from scipy import stats, optimize, integrate, interpolate, signal, sparse
import numpy as np
a, b = np.arange(10.), np.arange(10.) * 1.1 + 1
print(stats.ttest_ind(a, b), stats.pearsonr(a, b ** 2).statistic.round(6), stats.norm.cdf(1.96).round(6))
print(optimize.minimize(lambda x: (x[0] - 3) ** 2, [0]).x.round(4), optimize.brentq(np.cos, 0, 3))
print(integrate.quad(np.sin, 0, np.pi)[0], interpolate.CubicSpline(a, b)(2.5), sparse.eye(3).toarray().trace(), signal.find_peaks(np.sin(a))[0])
print(stats.norm.rvs(size=2, random_state=1), stats.linregress(a, b).slope)
