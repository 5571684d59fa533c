# Threads that are not daemons are waited for; atexit comes after.
import threading, atexit
atexit.register(print, 'atexit')
def work(n, before):
    before.join(); print('thread', n, threading.current_thread().name)
before = threading.main_thread()
for i in (1, 2, 3): before = threading.Thread(target=work, args=(i, before)); before.start()
print('main ends', threading.active_count())
