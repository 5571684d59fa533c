# exec, spawn, popen, system.
import os, sys
print(os.system('exit 3') >> 8, os.popen('echo popen').read())
print(os.waitstatus_to_exitcode(os.waitpid(os.posix_spawn('/bin/sh', ['sh', '-c', 'exit 4'], os.environ), 0)[1]))
sys.stdout.flush()
os.execv(sys.executable, [sys.executable, '-P', '-c', 'import signal; print(signal.getsignal(signal.SIGINT).__name__); raise SystemExit(6)'])
