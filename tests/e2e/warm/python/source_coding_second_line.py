#!/usr/bin/python3
# vim: set fileencoding=cp1252 :
# The second line names the encoding.
print(ascii('“quoted” – dash'))
raise SystemExit("ende: ü")
