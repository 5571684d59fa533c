# -*- coding: latin-1 -*-
# The source says its own encoding.
print('é', len('é'))
raise ValueError('é')
