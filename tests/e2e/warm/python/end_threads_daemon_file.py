# A file that only a daemon thread holds is lost; the program's own is not.
import threading, time
held = threading.Event()
def hold():
    f = open('/data/lost', 'w'); f.write('lost'); held.set(); time.sleep(60)
threading.Thread(target=hold, daemon=True).start()
held.wait()
g = open('/data/kept', 'w'); g.write('kept')
