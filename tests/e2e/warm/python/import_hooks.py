# Finders, loaders and hooks of the program's own, which see the imports that the program makes.
import builtins, importlib.abc, importlib.machinery, sys
class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path, target=None):
        if name == 'invented':
            return importlib.machinery.ModuleSpec(name, self)
    def exec_module(self, module):
        module.answer = 42
sys.meta_path.insert(0, Finder())
import invented
print(invented.answer, invented.__spec__.loader is sys.meta_path[0])
seen, real = [], builtins.__import__
def watching(name, *rest):
    seen.append(name)
    return real(name, *rest)
builtins.__import__ = watching
import pandas
from numpy import linalg
builtins.__import__ = real
print(seen[0], 'numpy' in seen)
sys.modules['seaborn'] = None
try:
    import seaborn
except ImportError as error:
    print(error)
class Blocker(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == 'duckdb':
            raise ImportError('blocked', name=name)
sys.meta_path.insert(0, Blocker())
try:
    import duckdb
except ImportError as error:
    print(error, error.name)
