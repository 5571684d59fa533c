# -*- coding: latin-1 -*-
# A line that names an encoding, and text beyond ASCII below it.
s = 'café €'
print(ascii(s), len(s), __file__.startswith("/tmp/run."))
print(s.encode('latin-1').decode())
def größe(): raise ValueError(s)
try: größe()
except ValueError as error: print(ascii(error))
