# faulthandler shows the program's frames and none beneath.
import faulthandler, re
out = open('/data/out', 'w+')
def f(): faulthandler.dump_traceback(out)
print(faulthandler.is_enabled())
f(); out.seek(0); print(re.sub('0x[0-9a-f]+', '0x', out.read())); out.truncate(0)
