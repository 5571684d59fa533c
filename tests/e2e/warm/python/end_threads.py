# Threads that are not daemons are waited for; atexit comes after.
import threading, time, atexit
atexit.register(print, 'atexit')
def work(n):
    time.sleep(0.05 * n); print('thread', n, threading.current_thread().name)
for i in (1, 2, 3): threading.Thread(target=work, args=(i,)).start()
print('main ends', threading.active_count())
