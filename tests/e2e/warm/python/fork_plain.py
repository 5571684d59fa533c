# os.fork: the child ends as a program of its own does.
import os, sys, atexit
atexit.register(lambda: print('atexit in', who))
who = 'parent'
f = open('/data/f', 'w'); f.write('text')
sys.stdout.flush()
pid = os.fork()
if pid == 0:
    who = 'child'
    print(os.getppid() != 1, os.getpid() != os.getppid(), len(__import__('threading').enumerate()))
    sys.exit(5)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
pid = os.fork()
if pid == 0:
    who = 'failing child'
    raise ValueError('child')
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
