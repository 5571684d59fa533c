# An object that comes back, and a generator that is in the middle.
class D:
    def __del__(self):
        global back
        print('resurrected'); back = self
d = D(); del d; del back
def g():
    try: yield 1
    finally: print('generator closed')
x = g(); next(x)
async def co():
    pass
c = co()
print('end')
