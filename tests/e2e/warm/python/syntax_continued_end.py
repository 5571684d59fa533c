# A line that continues at the end of the source.
x = 1 + \