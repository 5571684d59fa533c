# The trial of the warm part (../warm/pages.c): a small program, which shows what of memory programs write to.
import json
import math


class Item:
    def __init__(self, n):
        self.n = n
        self.root = math.sqrt(n)


items = [Item(n) for n in range(500)]
found = {f"item {item.n}": round(item.root, 2) for item in items if item.n % 3 == 0}
print("hello", len(found), json.dumps(found)[:100], sorted(found)[:3], sum(item.root for item in items))
