# The same after sys.exit(3), with a file.
import sys, os
sys.stdout = open('/dev/full', 'w')
print('x')
sys.exit(3)
