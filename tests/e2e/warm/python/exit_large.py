# SystemExit with a number that does not fit.
raise SystemExit(256 * 3 + 5)
