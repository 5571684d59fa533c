# Files in a module of the program's own.
import os
open('/data/mine.py', 'w').write('''
import atexit
f = open('/data/module-file', 'w'); f.write('from a module')
class D:
    def __del__(self): print('a module object goes', f.closed if f else f)
d = D()
atexit.register(lambda: f.write(' and atexit'))
''')
import mine
from mine import f as again
again.write('!')
