# A file that only a daemon thread holds is lost; the program's own is not.
import threading, time
def hold():
    f = open('/data/lost', 'w'); f.write('lost'); time.sleep(60)
threading.Thread(target=hold, daemon=True).start()
time.sleep(0.1)
g = open('/data/kept', 'w'); g.write('kept')
