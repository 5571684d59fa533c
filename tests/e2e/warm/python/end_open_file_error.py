# The same after an error.
f = open('/data/x', 'w'); f.write('abc')
def g(): local = open('/data/y', 'w'); local.write('local'); raise ValueError
g()
