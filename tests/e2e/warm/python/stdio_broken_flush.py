# Standard output that cannot be flushed at the end: exit code 120.
import sys
class Broken:
    closed = False
    def write(self, s): return len(s)
    def flush(self): raise OSError('cannot flush')
print('out')
sys.stdout = Broken()
print('nowhere')
