# Every library, its version and what it says at its import.
from importlib.metadata import version, distributions
print(sorted(d.metadata['Name'] for d in distributions()))
import numpy, pandas, matplotlib, seaborn, scipy, openpyxl, reportlab, pyarrow, requests, bs4, PIL, pypdf, lxml, tabulate
for m in (numpy, pandas, matplotlib, seaborn, scipy, openpyxl, reportlab, pyarrow, requests, bs4, PIL, pypdf, tabulate): print(m.__name__, m.__version__, m.__file__, m.__spec__.origin == m.__file__)
import PyPDF2
print(pandas.options.mode.copy_on_write, numpy.show_config is not None, matplotlib.get_cachedir(), matplotlib.get_configdir(), matplotlib.matplotlib_fname())
