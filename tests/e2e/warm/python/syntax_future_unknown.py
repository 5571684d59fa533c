from __future__ import annotations, no_such_feature
# A future that never comes.
print(1)
