# Resource warnings, shown if asked for.
import warnings, asyncio
warnings.simplefilter('always')
f = open('/data/x', 'w'); f.write('x')
def g(): open('/data/y', 'w')
g()
async def co(): pass
co()
