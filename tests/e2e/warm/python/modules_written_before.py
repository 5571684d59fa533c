# A module that a run before might have left, found by find_spec and as a main.
import importlib.util, sys, subprocess
open('/data/tool.py', 'w').write('if __name__ == "__main__": print("as main", __file__)\n')
print(importlib.util.find_spec('tool').origin)
print(subprocess.run([sys.executable, '-m', 'tool'], capture_output=True, text=True, env={'PYTHONPATH': '/data'}).stdout)
print(__import__('main', fromlist=['x']) if importlib.util.find_spec('main') else 'no module main')
