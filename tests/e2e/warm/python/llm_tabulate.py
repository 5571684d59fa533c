# A table in several formats.
from tabulate import tabulate
print(tabulate([['a', 1], ['b', 2.5]], headers=['n', 'v'], tablefmt='grid')); print(tabulate([[1]], tablefmt='github'))
