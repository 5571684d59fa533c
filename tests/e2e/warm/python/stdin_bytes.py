# stdin: h\u00e9llo \u2192 bytes
# Standard input as bytes.
import sys
print(sys.stdin.buffer.read())
