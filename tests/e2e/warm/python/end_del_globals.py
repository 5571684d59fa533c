# What __del__ finds at the end: its globals, builtins, modules; imports and errors in it.
import sys, os, json
sys.unraisablehook = lambda u: sys.__stderr__.write(repr(u.exc_value) + '\n')
class D:
    def __init__(self, n): self.n = n
    def __del__(self):
        print(self.n, __name__, os is None, sys is None or sys.is_finalizing(), len([1]))
        try:
            import decimal
            print('imported', decimal.__name__)
        except ImportError as e: print('ImportError', e)
        print(json.dumps([1]) if json else 'no json', sys and sys.meta_path, sys and len(sys.modules))
        raise ValueError('in __del__')
d = D('plain'); c = D('cycle'); c.me = c
def keep(): return d
