# Without any, standard input is /dev/null.
import sys, os
print(sys.stdin.read() == '', os.fstat(0).st_rdev == os.stat('/dev/null').st_rdev, repr(sys.stdin), sys.stdin.buffer, sys.stdin.buffer.raw)
print(sys.stdin.seekable(), sys.stdin.buffer.raw.seekable(), sys.stdin.isatty(), sys.stdin.line_buffering)
input('what? ')
