# Variables as they are in os.environ, in C and in children.
import os, subprocess, ctypes
skip = {'HOSTNAME', '_', 'PWD', 'SHLVL', 'OLDPWD'}
print(sorted((k, v) for k, v in os.environ.items() if k not in skip))
os.environ['ADDED'] = 'é'
del os.environ['LANG']
os.putenv('PUT', '1')
print(subprocess.run(['/usr/bin/env'], capture_output=True, text=True).stdout.count('ADDED=é'))
c = ctypes.CDLL(None)
c.getenv.restype = ctypes.c_char_p
print(c.getenv(b'ADDED'), c.getenv(b'LANG'), c.getenv(b'PUT'), os.getenv('PUT'), os.environb[b'ADDED'])
