# A hundred thousand lines, and a few megabytes at once.
import sys
for i in range(100000): print(i)
sys.stdout.write('x' * 3_000_000 + '\n')
print('end', file=sys.stderr)
