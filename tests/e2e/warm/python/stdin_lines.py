# stdin: one\ntwo\n\nfour
# Lines, bytes and the objects themselves.
import sys
print(sys.stdin.fileno(), sys.stdin.isatty(), sys.stdin.encoding, sys.stdin.errors, sys.stdin.name, sys.stdin.mode, sys.stdin.seekable())
print(sys.stdin.readline())
for line in sys.stdin: print(repr(line))
print(sys.stdin.buffer.read())
