# os._exit: nothing is called, nothing is flushed.
import os, atexit
atexit.register(print, 'never')
f = open('/data/lost', 'w'); f.write('lost')
print('out')
os._exit(9)
