#!/usr/bin/env python3
# -*- coding: utf-8 -*-
"""A byte order mark before a shebang, and a line that agrees with it."""
from __future__ import annotations
print(__doc__, ascii("é"))
