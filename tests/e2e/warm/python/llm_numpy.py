# Arrays, linear algebra, random numbers with a seed, printing.
import numpy as np
rng = np.random.default_rng(0); np.random.seed(0)
a = rng.normal(size=(4, 4)); b = np.random.rand(4)
print(np.linalg.solve(a, b).round(6), np.linalg.eigvalsh(a @ a.T).round(6), np.fft.rfft(b).round(4))
print(np.array([1.5, np.nan, np.inf]), np.arange(2000), np.float32(1) / 3, repr(np.int64(3)))
print(np.array([1, 2]) / 0)
np.save('/data/a.npy', a); np.savetxt('/data/a.txt', a); print(np.load('/data/a.npy').shape, np.geterr(), np.get_printoptions()['precision'])
np.array([1, 2]) + np.array([1, 2, 3])
