# The recursion limit is met at the same depth.
import sys
def depth(n=0):
    try: return depth(n + 1)
    except RecursionError: return n
print(depth(), depth())
sys.setrecursionlimit(300)
print(depth())
class R:
    def __repr__(self): return repr(self)
try: repr(R())
except RecursionError as e: print(e)
l = []
for _ in range(100000): l = [l]
try: repr(l)
except RecursionError as e: print(e)
try: eval('(' * 150 + ')' * 150)
except (SyntaxError, MemoryError) as e: print(type(e), e)
def f(): f()
f()
