# What the system tells of the process: its line of arguments, its name, session, folder, mask, signals.
import os, threading
print(open('/proc/self/cmdline').read().split('\0'))
print(open('/proc/self/comm').read(), open('/proc/thread-self/comm').read(), os.readlink('/proc/self/exe'))
print(os.getpid() == os.getsid(0) == os.getpgid(0), os.getcwd(), oct(os.umask(0o22)))
status = dict(line.rstrip('\n').split(':\t', 1) for line in open('/proc/self/status'))
for name in ('Name', 'Umask', 'State', 'Uid', 'Gid', 'Groups', 'Threads', 'SigPnd', 'ShdPnd', 'SigBlk', 'SigIgn', 'SigCgt', 'CapEff', 'NoNewPrivs', 'Seccomp'):
    print(name, status[name])
print(threading.active_count(), threading.current_thread().name)
print(threading.get_native_id() == os.getpid() == threading.main_thread().native_id, threading.get_ident() == threading.main_thread().ident)
import getpass
print(getpass.getuser(), os.path.expanduser('~'), os.getuid())
import ctypes
death = ctypes.c_int(-1)
ctypes.CDLL(None).prctl(2, ctypes.byref(death), 0, 0, 0)
print('dies with its parent:', death.value)
