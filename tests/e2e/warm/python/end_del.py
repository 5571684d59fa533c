# __del__ of what is alive at the end, and in which order.
import functools, weakref
class D:
    def __init__(self, n): self.n = n
    def __del__(self): print('gone', self.n)
a = D('a'); b = D('b'); _under = D('_under')
c = D('cycle'); c.me = c
lst = [D(i) for i in range(3)]
D('at once')
def f(x=D('default')): pass
class Holder: kept = D('class attribute')
@functools.lru_cache
def cached(): return D('cached')
cached()
weakref.finalize(a, print, 'finalize a')
w = weakref.ref(b, lambda r: print('weakref callback'))
print('end of the program')
