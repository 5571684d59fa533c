# sys.stdout replaced by a file that is never closed.
import sys
print('before')
sys.stdout = open('/data/out.txt', 'w')
print('in the file')
class Folder:
    def write(self, s): open('/data/err.txt', 'a').write(s.replace(__file__, 'main.py'))
    def flush(self): pass
sys.stderr = Folder()
raise ValueError('in the other')
