# sys.argv and what else sys tells of how the interpreter was started.
import sys, os
print(sys.argv, sys.orig_argv, sys.flags)
print(sys.path, sys.executable, sys.prefix, sys.exec_prefix, sys.base_prefix, sys._base_executable)
print(sys.warnoptions, sys._xoptions, sys.dont_write_bytecode, sys.pycache_prefix)
print(sys.getrecursionlimit(), sys.getswitchinterval(), sys.gettrace(), sys.getprofile())
print(sys.platlibdir, sys.version, sys.hexversion, sys.implementation.name, sys.api_version)
print(hasattr(sys, 'ps1'), hasattr(sys, 'last_exc'), hasattr(sys, 'last_value'), sys.is_finalizing())
print([f.__class__.__name__ if not isinstance(f, type) else f.__name__ for f in sys.meta_path], len(sys.path_hooks))
print(sys.path_importer_cache.get(sys.argv[0], 'absent'))
print(sys.excepthook is sys.__excepthook__, sys.displayhook is sys.__displayhook__, sys.unraisablehook is sys.__unraisablehook__)
