# Resource limits, scheduling, and that the clocks of the process begin with the program.
import resource, os, time
for name in sorted(n for n in dir(resource) if n.startswith('RLIMIT_')):
    print(name, resource.getrlimit(getattr(resource, name)))
print(os.nice(0), os.sched_getscheduler(0), len(os.sched_getaffinity(0)) > 0)
print(time.process_time() < 5, resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime)
resource.setrlimit(resource.RLIMIT_NOFILE, (16, 16))
try:
    files = [open('/dev/null') for _ in range(32)]
except OSError as e:
    print(e)
