# Null bytes in a module, in text that is compiled, in data and in names.
open('/data/broken.py', 'wb').write(b'x = 1\0\n')
try:
    import broken
except SyntaxError as error:
    print(type(error).__name__, error.msg)
for text in ('1\0', 'print("a\0b")', b'1\0'):
    try:
        print(eval(compile(text, 'f', 'eval')))
    except (SyntaxError, ValueError) as error:
        print(type(error).__name__, error)
print(repr('a\0b'), len('\0'), b'\0' * 3)
try:
    open('/data/a\0b')
except ValueError as error:
    print(error)
try:
    __import__('a\0b')
except ModuleNotFoundError as error:
    print(ascii(str(error)))
