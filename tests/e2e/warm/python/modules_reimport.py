# Modules taken out of sys.modules and imported again.
import sys, json, decimal, random
old = json
del sys.modules['json'], sys.modules['random']
import json, random as again
print(json is old, json.dumps({'a': 1}), again is random, again.random() != random.random())
import importlib
importlib.reload(decimal); print(decimal.Decimal('1.1'))
sys.modules['fake'] = None
try: import fake
except ImportError as e: print(e)
