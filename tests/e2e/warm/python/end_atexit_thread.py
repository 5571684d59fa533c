# Threads and processes that atexit starts.
import atexit, threading, os, sys
def late():
    t = threading.Thread(target=print, args=('thread',)); t.start(); t.join()
    sys.stdout.flush()
    pid = os.fork()
    if pid: print(os.waitpid(pid, 0)[1])
atexit.register(late)
