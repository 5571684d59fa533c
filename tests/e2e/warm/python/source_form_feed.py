# A form feed between parts, before an indented line, and in a string.

import pandas
print(pandas.__name__)
if True:
    print("ab".split(""))
 = 1
