# argparse without its arguments: usage on standard error, exit code 2.
import argparse, os
a = argparse.ArgumentParser(description='Does things'); a.add_argument('file'); a.add_argument('-n', type=int, default=3)
print(a.prog, a.parse_args(['x', '-n', '4']))
a.parse_args()
