# No library has started a thread.
import numpy, pandas, pyarrow, scipy.linalg, os
numpy.ones((300, 300)) @ numpy.ones((300, 300))
print(len(os.listdir('/proc/self/task')))
