# C's own buffers and handlers.
import ctypes, os
c = ctypes.CDLL(None)
c.fopen.restype = ctypes.c_void_p
c.fputs.argtypes = [ctypes.c_char_p, ctypes.c_void_p]
f = c.fopen(b'/data/by-c', b'w'); c.fputs(b'buffered in C', f)
c.setenv(b'FROM_C', b'1', 1)
print(os.environ.get('FROM_C'), os.popen('echo $FROM_C').read())
print(c.getpid() == os.getpid(), ctypes.sizeof(ctypes.c_long))
c.printf(b'no newline, no flush')
