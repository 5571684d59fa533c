# The same order after sys.exit and in a thread's presence.
import sys, threading
class D:
    def __del__(self): print('gone')
d = D()
t = threading.Thread(target=lambda: print('thread')); t.start(); t.join()
sys.exit(2)
