# A library that is loaded already is the same one by another path: the loader compares device and inode.
import ctypes


def mappings():
    with open("/proc/self/maps") as lines:
        return sum(1 for _ in lines)


before = mappings()
one = ctypes.CDLL(None)
other = ctypes.CDLL(f"/usr/lib/{__import__('sysconfig').get_config_var('MULTIARCH')}/libc.so.6")
address = [ctypes.cast(library.getpid, ctypes.c_void_p).value for library in (one, other)]
print(mappings() - before < 4, address[0] == address[1])
