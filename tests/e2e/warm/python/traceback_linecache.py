# Source lines come from the file as it is, and of code that has none.
import linecache, traceback
print(sorted(linecache.cache))
print(linecache.getline(__file__, 1))
exec(compile("def g():\n    raise KeyError('x')\n", '<made>', 'exec'))
try: g()
except KeyError: traceback.print_exc()
open(__file__, 'a').write('# more\n')
linecache.checkcache()
eval('1/0')
