# Errors that nobody can catch, and a hook for them.
import sys, re, os
class D:
    def __del__(self): raise KeyError('x')
sys.stderr = open('/data/stderr', 'w+')
D()
sys.stderr.seek(0); print(re.sub('0x[0-9a-f]+', '0x', sys.stderr.read())); os.unlink('/data/stderr')
sys.stderr = sys.__stderr__
sys.unraisablehook = lambda u: print('hook', u.exc_type.__name__, u.err_msg, u.object.__name__ if hasattr(u.object, '__name__') else '')
D()
d = D()
