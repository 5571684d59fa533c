# Standard output closed by the program.
import sys, atexit
atexit.register(lambda: sys.stderr.write('atexit\n'))
print('x')
sys.stdout.close()
try: print('y')
except ValueError as e: sys.stderr.write(str(e) + '\n')
