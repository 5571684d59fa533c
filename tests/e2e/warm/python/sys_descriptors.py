# Only 0, 1 and 2 are open; the next file gets 3.
import os
print(sorted(int(fd) for fd in os.listdir('/proc/self/fd') if os.path.exists('/proc/self/fd/' + fd)))
with open('/data/x', 'w') as f:
    print(f.fileno(), os.get_inheritable(f.fileno()), [os.get_inheritable(n) for n in (0, 1, 2)])
print(os.readlink('/proc/self/fd/0'), os.path.exists('/proc/self/fd/3'))
