# SystemExit with a number that fits nowhere.
raise SystemExit(2 ** 70)
