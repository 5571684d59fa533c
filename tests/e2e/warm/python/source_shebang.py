#!/usr/bin/env python3
# A first line as of a script.
print(__file__.startswith('/tmp/run.'))
