# python as a child: its arguments, modules, environment, and its failure.
import subprocess, sys
print(subprocess.run([sys.executable, '-c', 'import sys; print(sys.argv, sys.flags.safe_path, "numpy" in sys.modules)', 'a'], capture_output=True, text=True).stdout)
print(subprocess.run(['python3', __file__ + 'x'], capture_output=True, text=True).returncode)
p = subprocess.Popen(['cat'], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
print(p.communicate('piped'))
try: subprocess.run(['sleep', '5'], timeout=0.1)
except subprocess.TimeoutExpired as e: print(e)
try: subprocess.check_output(['sh', '-c', 'echo e >&2; exit 2'], stderr=subprocess.STDOUT)
except subprocess.CalledProcessError as e: print(e, e.output)
print(subprocess.run('echo $0 $$ | wc -w', shell=True, capture_output=True).stdout)
print(subprocess._args_from_interpreter_flags())
subprocess.run(['sh', '-c', 'echo straight through; echo err >&2'])
