# The program's own modules: a file, a package, reload, names of the library's, of an installed one.
import os, sys, importlib
open('/data/helper.py', 'w').write('print("helper runs", __name__, __file__)\nx = 1\n')
os.mkdir('/data/pkg'); open('/data/pkg/__init__.py', 'w').write('from .sub import y\n'); open('/data/pkg/sub.py', 'w').write('y = 2\n')
open('/data/json.py', 'w').write('raise SystemExit(99)\n'); open('/data/numpy.py', 'w').write('raise SystemExit(99)\n')
import helper, pkg, json, numpy
print(helper.x, pkg.y, json.__file__, numpy.__file__, importlib.reload(helper).x)
print(sorted(m for m in sys.modules if getattr(sys.modules[m], '__file__', None) and sys.modules[m].__file__.startswith('/data')))
try: import no_such_module
except ImportError as e: print(repr(e))
try: from json import nothing
except ImportError as e: print(e)
print(sorted(os.listdir('/data')))
exec(open('/data/helper.py').read())
import runpy
print(runpy.run_path('/data/helper.py')['__name__'])
import no.such
