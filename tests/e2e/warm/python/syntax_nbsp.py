# Text that the source cannot have.
print("\ud800" == "\ud800")
name = 1
