# stdin: 3\n4 5\nrest of\nit
# input() and what is left after it.
n = int(input())
a, b = map(int, input('prompt> ').split())
print(n + a + b)
import sys
print(repr(sys.stdin.read()))
print(repr(sys.stdin.read()))
try: input()
except EOFError as e: print('EOF', e)
