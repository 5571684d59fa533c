# A closed pipe is an error, not a death; in a child by subprocess it is a death.
import os, subprocess, sys
r, w = os.pipe(); os.close(r)
try: os.write(w, b'x')
except BrokenPipeError as e: print(e)
print(subprocess.run(['sh', '-c', 'yes | head -1; trap'], capture_output=True, text=True))
