# The three streams: encodings, buffering, what they are made of.
import sys, io
for s in (sys.stdin, sys.stdout, sys.stderr):
    print(s, s.name, s.mode, s.encoding, s.errors, s.line_buffering, s.write_through, s.newlines, s.isatty(), s.closed, s.fileno())
    print(type(s.buffer), getattr(s.buffer, 'raw', s.buffer), s.seekable(), s.readable(), s.writable())
    try: print(s.tell())
    except OSError as e: print(e)
print(sys.stdin is sys.__stdin__, sys.stdout is sys.__stdout__, sys.stderr is sys.__stderr__)
sys.stdout.write('é→😀\n'); sys.stdout.buffer.write(b'bytes\n'); sys.stdout.reconfigure(line_buffering=True)
sys.stderr.write('\ud800\n')
print(sys.getfilesystemencoding(), sys.getdefaultencoding(), sys.getfilesystemencodeerrors(), io.text_encoding(None))
import locale
print(locale.getlocale(), locale.getpreferredencoding(), locale.setlocale(locale.LC_ALL))
try: print('\ud800')
except UnicodeEncodeError as e: print(e)
