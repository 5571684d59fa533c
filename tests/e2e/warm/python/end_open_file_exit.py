# The same after sys.exit in a function, whose locals are alive.
import sys
def g():
    local = open('/data/y', 'w'); local.write('local'); sys.exit(3)
g()
