# sys.exit with nothing.
raise SystemExit
