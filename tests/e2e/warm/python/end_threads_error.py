# Errors in threads, and one that starts another while main has ended.
import threading, time
def bad(): raise ValueError('in a thread')
threading.Thread(target=bad, name='T').start()
time.sleep(0.1)
def starts():
    time.sleep(0.1)
    threading.Thread(target=lambda: print('from a thread')).start()
threading.Thread(target=starts).start()
threading.Thread(target=lambda: exit(3)).start()
raise SystemExit(4)
