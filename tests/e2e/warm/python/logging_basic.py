# logging: the default, basicConfig, files, errors, and what is flushed at the end.
import logging, sys
logging.warning('before any configuration')
logging.getLogger('x').error('of x')
print(logging.getLogger().handlers, logging.getLogger().level)
logging.basicConfig(level=logging.DEBUG, format='%(levelname)s %(name)s %(funcName)s %(lineno)d %(processName)s %(threadName)s %(filename)s %(message)s', force=True)
def f(): logging.debug('in f')
f(); logging.info('at the top')
h = logging.FileHandler('/data/log.txt'); logging.getLogger('y').addHandler(h); logging.getLogger('y').info('into the file')
import logging.handlers
m = logging.handlers.MemoryHandler(100, target=logging.StreamHandler(sys.stdout)); logging.getLogger('m').addHandler(m); logging.getLogger('m').propagate = False
logging.getLogger('m').info('kept till the end')
try: 1 / 0
except ZeroDivisionError: logging.exception('with a traceback')
record = logging.LogRecord('n', 20, 'p', 1, 'm', (), None)
print(0 <= record.relativeCreated < 60000)
