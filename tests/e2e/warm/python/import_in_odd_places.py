# Imports where they are easily missed, and words that look like imports.
"""import seaborn"""
import os as pandas_not, sys; from pandas import DataFrame as D, \
    Series as \
    S; import numpy.linalg as la, matplotlib.pyplot as plt
text = '''
import no_such_module
from no_such_module import *
'''
# import no_such_module
importpandas = from_pandas = 1
if False: import no_such_module
if 0:
    from no_such_module import x
try: import no_such_module
except ImportError: no_such_module = None
class C:
    import statistics
    from math import (pi,
        tau)
f = lambda: __import__('PIL.Image').Image.new('L', (1, 1)).size
def late():
    global requests
    import requests
    from lxml import etree
    return etree.tostring(etree.fromstring('<a/>')), requests.__name__
print(D({'x': S([1, 2])}).x.max(), la.norm([3, 4]), C.statistics.mean([1, 3]), C.tau > C.pi, f(), late(), plt.__name__)
from pandas import *
print(Timestamp('2020-02-29').day_name(), no_such_module)
print([name for name in ('requests', 'statistics') if name in dir()])
def threads():
    import threading
    out = []
    t = threading.Thread(target=lambda: out.append(__import__('scipy.stats').__name__)); t.start(); t.join()
    return out
print(threads())
if os_pid := pandas_not.fork():
    print(pandas_not.waitstatus_to_exitcode(pandas_not.waitpid(os_pid, 0)[1]))
else:
    import sqlalchemy
    pandas_not._exit(len(sqlalchemy.__name__))
