# gc.callbacks at the end.
import gc
gc.collect()
gc.callbacks.append(lambda phase, info: print(phase, info['generation']))
print('end')
