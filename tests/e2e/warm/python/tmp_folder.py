# /tmp has the program's own code and no other.
import os
print([n for n in sorted(os.listdir('/tmp')) if n.startswith('run.')] == [os.path.basename(os.path.dirname(__file__))])
print(oct(os.stat(os.path.dirname(__file__)).st_mode), oct(os.stat(__file__).st_mode), os.listdir(os.path.dirname(__file__)))
print(sorted(n for n in os.listdir('/tmp') if n.startswith('.')))
print(os.path.getsize(__file__) == len(open(__file__, 'rb').read()))
