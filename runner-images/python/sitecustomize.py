# This file is empty on purpose. Debian's own version imports apport_python_hook, which is not installed. /data is on
# sys.path, so a file of that name there would run before the user's code.
