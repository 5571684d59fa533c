# What goes to one stream through different doors keeps its order, and half a line is out at once.
import sys, os, subprocess
print('a', end='')
os.write(1, b'b')
sys.stdout.buffer.write(b'c')
subprocess.run(['echo', 'd'])
import ctypes
c = ctypes.CDLL(None)
c.printf(b'by C\n')
print('e')
c.puts(b'C again, flushed at the end')
