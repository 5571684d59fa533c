# SystemExit with a negative number.
raise SystemExit(-3)
