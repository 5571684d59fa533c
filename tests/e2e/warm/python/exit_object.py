# SystemExit with an object: it is printed, and the code is 1.
raise SystemExit([1, 'x'])
