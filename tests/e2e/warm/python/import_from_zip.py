# Modules in a zip archive, a package with data in it, an archive that is run, and a broken one.
import pkgutil, runpy, sys, zipfile, zipimport
# A ZipInfo has a time of its own, the same in each run; a name alone takes the clock's.
with zipfile.ZipFile('/data/lib.zip', 'w') as z:
    add = lambda name, text: z.writestr(zipfile.ZipInfo(name), text)
    add('inside.py', 'import pandas\nvalue = pandas.Series([1, 2]).sum()\n')
    add('package/__init__.py', 'from .part import name\n')
    add('package/part.py', 'name = __name__\n')
    add('package/data.txt', 'data')
    add('__main__.py', 'import numpy, sys\nprint("main", numpy.ones(2).sum(), sys.argv[0])\n')
    add('fails.py', 'import numpy\ndef f():\n    return 1 / 0\n')
sys.path.insert(0, '/data/lib.zip')
import inside, package
print(inside.value, inside.__file__, package.name, pkgutil.get_data('package', 'data.txt'))
print(zipimport.zipimporter('/data/lib.zip').is_package('package'), type(inside.__loader__).__name__)
runpy.run_path('/data/lib.zip', run_name='__main__')
open('/data/broken.zip', 'wb').write(open('/data/lib.zip', 'rb').read()[:100])
sys.path.insert(0, '/data/broken.zip')
try:
    import no_such_module
except ModuleNotFoundError as error:
    print(error)
try:
    zipimport.zipimporter('/data/broken.zip')
except zipimport.ZipImportError as error:
    print(error)
import fails
fails.f()
