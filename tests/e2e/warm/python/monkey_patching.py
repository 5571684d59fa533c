# Libraries changed by the program.
import json, datetime, random, builtins, time, math
json.dumps = lambda x: 'patched'
print(json.dumps(1))
random.seed(42); print(random.random(), random.sample(range(100), 3))
real = builtins.print
builtins.print = lambda *a, **k: real('>', *a, **k)
print('through the patch')
time.sleep = lambda s: None
time.sleep(100)
class list(list): pass
from unittest import mock
with mock.patch('math.sqrt', return_value=7): real(math.sqrt(4))
real(math.sqrt(4))
builtins.len = lambda x: 42
real(len([]))
