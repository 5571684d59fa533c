# The source mixes tabs and spaces.
if True:
	x = 1
        y = 2
