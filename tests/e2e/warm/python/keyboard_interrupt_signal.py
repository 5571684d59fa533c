# SIGINT becomes KeyboardInterrupt, once caught, once not.
import os, signal, time
try:
    os.kill(os.getpid(), signal.SIGINT); time.sleep(5)
except KeyboardInterrupt: print('caught')
class K(KeyboardInterrupt): pass
try: raise K
except KeyboardInterrupt as e: print(repr(e))
os.kill(os.getpid(), signal.SIGINT)
time.sleep(5)
