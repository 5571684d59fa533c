# The warm part of paddock-runner-python. It imports the libraries that programs use, and then forks a child for each run.
# The protocol is in ../README.md, "The warm part"; everything except the imports is in warm/*.c. This file must never read
# anything in /data, so /data is not on sys.path until the last import. Every program inherits the state of this process, so
# this file must leave nothing behind that a program could notice.
# isort: off
import sys

sys.path.remove("/data")
sys.path.insert(0, "/usr/local/lib/sandbox")
import _warm

del sys.path[0], sys.modules["_warm"]

import atexit

atexit.register(_warm.before_modules_go)  # registered first, so called last

_warm.link_caches()

# Three levels: what a level has more costs each run of it more. Modules are here that take more than a few milliseconds to
# import, and that programs use so often that they are worth a fraction of a millisecond in every run. README.md has the figures,
# and ../Dockerfile-python the words that say which level takes a program. A module that prints something when it is imported
# must not be here.
level, *directory = sys.argv[1:] or ["all"]
if level not in ("plain", "tables", "all"):
    sys.exit(f"warm.py: the level is {level!r}, expected plain, tables or all")

import argparse, array, ast, base64, bisect, calendar, cmath, codecs, collections, colorsys, contextlib, copy
import csv, dataclasses, datetime, decimal, difflib, enum
import fractions, functools, gc, getpass, glob, hashlib, heapq, html, inspect, io, itertools, json, linecache, logging, math
import numbers, operator, os, pathlib, platform, pprint, queue, random, re, secrets, shlex, shutil, signal, statistics, string, struct
import subprocess, tempfile, textwrap, threading, time, timeit, traceback, types, typing, unicodedata, urllib.parse, uuid, warnings, zoneinfo

if level != "plain":
    import numpy
    import pandas

if level == "all":
    import asyncio, concurrent.futures.process, concurrent.futures.thread, configparser, ctypes, email.message, gzip, http.client
    import multiprocessing.pool, pickle, sqlite3, tarfile, urllib.request, xml.etree.ElementTree, zipfile
    import pandas.io.excel._openpyxl
    import pyarrow.parquet
    import matplotlib.pyplot
    import matplotlib.backends.backend_agg
    import matplotlib.dates
    # seaborn only asks whether statsmodels is there. To import it would cost every run half a millisecond.
    sys.modules["statsmodels"] = types.ModuleType("statsmodels")
    import seaborn
    del sys.modules["statsmodels"], seaborn.regression.statsmodels
    import PIL.ImageDraw, PIL.ImageFont, PIL.PngImagePlugin, PIL.JpegImagePlugin
    import openpyxl.chart
    import lxml.html
    import bs4
    import requests
    import tabulate

multiprocessing = sys.modules.get("multiprocessing")
if multiprocessing:
    multiprocessing.process.ORIGINAL_DIR = "/data"


def prepare():
    """Gives each child the random state that a new interpreter would have."""
    if level != "plain":
        numpy.random.seed(int.from_bytes(os.urandom(4)))
    if multiprocessing:
        multiprocessing.process.current_process().authkey = os.urandom(32)


linecache.clearcache()
sys.path_importer_cache.pop("/data", None)
sys.path.append("/data")
with open("/proc/self/status") as status:
    threads = [line.split()[1] for line in status if line.startswith("Threads:")]
if threads != ["1"]:
    sys.exit(f"warm.py: {threads[0]} threads, and only the one that forks would be in the child")
del status, threads
gc.disable()
_warm.keep_all(prepare)
trial = "/usr/local/share/sandbox/" + ("trial-tables.py" if level == "tables" else "trial.py")
# Of a snapshot, an idle container has all levels standing, and most sessions use one.
_warm.serve(prepare, trial, bool(directory) and level != "plain", *directory)
