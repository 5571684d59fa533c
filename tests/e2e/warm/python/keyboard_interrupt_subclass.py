# A subclass of KeyboardInterrupt is an error like any other.
class K(KeyboardInterrupt): pass
raise K('x')
