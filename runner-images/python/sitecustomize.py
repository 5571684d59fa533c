# Deliberately nothing. Debian's own file imports apport_python_hook, which is not installed, so a file of that name in
# /data, which is on sys.path, would run before the user's code.
