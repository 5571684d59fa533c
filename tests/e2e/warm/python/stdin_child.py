# stdin: for the child\n
# A child inherits it.
import subprocess
print(subprocess.run(['cat'], capture_output=True).stdout)
