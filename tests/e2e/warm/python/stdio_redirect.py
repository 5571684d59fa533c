# contextlib's redirections, and print's file.
import contextlib, io, sys
b = io.StringIO()
with contextlib.redirect_stdout(b), contextlib.redirect_stderr(b):
    print('hidden'); print('too', file=sys.stderr)
print(repr(b.getvalue()))
