# os.abort dies by SIGABRT.
import os, resource
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
print('before')
os.abort()
