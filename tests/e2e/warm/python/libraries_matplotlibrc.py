# A matplotlibrc of the user's, which is read from the working directory.
import subprocess, sys
open('/data/matplotlibrc', 'w').write('figure.figsize: 3, 3\n')
print(subprocess.run([sys.executable, '-c', 'import matplotlib; print(matplotlib.rcParams["figure.figsize"])'], capture_output=True, text=True).stdout)
