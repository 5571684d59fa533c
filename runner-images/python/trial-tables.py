# The trial of the level that has pandas: what of memory the smallest program with a table writes to.
import pandas

print(pandas.DataFrame({"a": [1, 2, 3], "b": list("xyz")}).a.sum())
