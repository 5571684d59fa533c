# Warnings: which are shown, once, with their line.
import warnings
def old(): warnings.warn('old', DeprecationWarning, stacklevel=2)
old()
for _ in range(3): warnings.warn('once a line')
with warnings.catch_warnings(record=True) as w:
    warnings.simplefilter('always'); old(); print(len(w), w[0].lineno, w[0].filename == __file__)
warnings.simplefilter('error')
warnings.warn('now an error')
