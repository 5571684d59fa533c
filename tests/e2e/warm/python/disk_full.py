# /data or /dev/full has no room.
f = open('/dev/full', 'w')
f.write('x')
try: f.flush()
except OSError as e: print(e)
g = open('/dev/full', 'wb', buffering=0)
try: g.write(b'x')
except OSError as e: print(e)
