# Plenty of objects, cycles and collections.
import gc
class Node:
    def __init__(self, v): self.v = v; self.next = self
nodes = [Node(i) for i in range(200000)]
d = {i: [i] * 3 for i in range(100000)}
print(sum(n.v for n in nodes), len(d), gc.isenabled())
del nodes
