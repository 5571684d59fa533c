# sys.exit with a number.
import sys
print('out'); print('err', file=sys.stderr)
sys.exit(7)
