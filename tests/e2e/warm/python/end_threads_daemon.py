# Daemon threads are not waited for, whatever they do.
import threading, time
def forever():
    while True: time.sleep(0.01)
def busy():
    while True: pass
threading.Thread(target=forever, daemon=True).start()
threading.Thread(target=busy, daemon=True).start()
time.sleep(0.05)
class D:
    def __del__(self): print('del')
d = D()
f = open('/data/x', 'w'); f.write('x')
print('end')
