# Classes and functions of the program through pickle, copy and back.
import pickle, copy, enum, collections, sys
class P:
    def __init__(self, x): self.x = x
    def __eq__(self, o): return self.x == o.x
class Color(enum.Enum): RED = 1
T = collections.namedtuple('T', 'a b')
def f(): return 1
print(P.__module__, f.__module__, T.__module__, Color.__module__, P.__qualname__)
for thing in (P([1]), Color.RED, T(1, 2), f, P):
    data = pickle.dumps(thing); print(b'__main__' in data, pickle.loads(data) == thing)
print(copy.deepcopy(P(1)).x)
try: pickle.dumps(lambda: 1)
except Exception as e: print(type(e).__name__, str(e).split(' at 0x')[0].split('<function')[0])
