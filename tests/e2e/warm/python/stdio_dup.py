# Descriptor 1 put somewhere else and back.
import os, sys
saved = os.dup(1)
fd = os.open('/data/captured', os.O_WRONLY | os.O_CREAT)
os.dup2(fd, 1); print('to the file'); os.system('echo child too'); os.dup2(saved, 1)
print('back', open('/data/captured').read())
