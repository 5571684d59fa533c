# Imports in code that is text first: exec, eval, compile, a decoded string, a code object, a generated module.
import base64, marshal, runpy, sys, types
exec('import pandas as pd; print(pd.Series([1, 2, 3]).mean())')
print(eval('__import__("numpy").zeros(2)'))
exec(base64.b64decode(b'aW1wb3J0IG1hdHBsb3RsaWIucHlwbG90IGFzIHBsdDsgcHJpbnQocGx0LmdldF9iYWNrZW5kKCkp'))
exec(compile("from seaborn import color_palette\nprint(len(color_palette()))", 'generated.py', 'exec'), {'__name__': 'x'})
exec(marshal.loads(marshal.dumps(compile('import openpyxl; print(openpyxl.__name__)', 'm', 'exec'))))
made = types.ModuleType('made')
exec('import json\ndef f(): return json.dumps({1: 2})', made.__dict__)
sys.modules['made'] = made
from made import f
print(f())
open('/data/script.py', 'w').write('import bs4\nprint(__name__, bs4.BeautifulSoup("<p>x</p>", "lxml").p.text)\n')
print(sorted(runpy.run_path('/data/script.py', run_name='__main__'))[:2])
try:
    exec('import pandas\nimport no_such_module')
except ModuleNotFoundError as error:
    print(error, error.name)
exec('def g():\n  import pandas\n  raise ValueError(pandas.__name__)\ng()')
