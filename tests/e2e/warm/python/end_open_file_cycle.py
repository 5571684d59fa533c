# Files in a reference cycle, in a default, in a list, in a closure, on a function, on a class.
class C:
    kept = open('/data/class', 'w')
    def __init__(self, n): self.me = self; self.f = open(n, 'w'); self.f.write(n)
C('/data/cycle'); c = C('/data/cycle2'); C.kept.write('class')
def f(x=open('/data/default', 'w')): x.write('default')
f()
files = [open('/data/list%d' % i, 'w') for i in range(3)]
for i, g in enumerate(files): g.write(str(i))
def outer():
    h = open('/data/closure', 'w')
    def inner(): h.write('closure')
    return inner
o = outer(); o()
f.attribute = open('/data/attribute', 'w'); f.attribute.write('a')
def generator():
    with open('/data/generator', 'w') as k:
        k.write('generator'); yield 1
n = generator(); next(n)
import itertools
tee = itertools.tee(iter([open('/data/tee', 'w')]))
