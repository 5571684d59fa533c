# Modules imported by __import__ and importlib, by names that no look at the source finds.
import importlib, importlib.util, sys
pd = __import__('pan' + 'das')
np = importlib.import_module('num' + 'py')
plt = __import__('matplotlib.pyplot', fromlist=['figure'])
excel = importlib.import_module('.excel', 'pandas.io')
print(pd.DataFrame({'a': [1, 2]}).a.sum(), np.arange(3).sum(), plt.__name__, excel.__name__)
print(__import__('matplotlib.pyplot').__name__, __import__('os.path').__name__)
print(importlib.import_module('pandas') is pd, sys.modules['numpy'] is np)
print(importlib.util.find_spec('seaborn') is not None, importlib.util.find_spec('no_such_module'))
getattr(__builtins__, '__imp' + 'ort__')('seaborn').set_theme()
name = 'tabu' 'late'
module = importlib.util.module_from_spec(importlib.util.find_spec(name))
module.__spec__.loader.exec_module(module)
print(module.tabulate([[1, 2]]))
for wrong in ('no_such_module', '.relative', '', 'pandas.no_such_part', 'numpy.'):
    try:
        importlib.import_module(wrong)
    except Exception as error:
        print(type(error).__name__, error)
