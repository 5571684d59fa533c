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

# Modules that take more than a few milliseconds to import, and that programs use so often that they are worth a fraction of
# a millisecond in every run. README.md has the figures. A module that prints something when it is imported must not be here.
import argparse, ast, asyncio, base64, calendar, collections, concurrent.futures.process, concurrent.futures.thread, configparser
import contextlib, copy, csv, ctypes, dataclasses, datetime, decimal, difflib, email.message, enum, fractions, functools, gc
import getpass, glob, gzip, hashlib, heapq, html, http.client, inspect, io, itertools, json, linecache, logging, math
import multiprocessing.pool, os, pathlib, pickle, platform, pprint, queue, random, re, secrets, shutil, sqlite3, statistics
import string, struct, subprocess, tarfile, tempfile, textwrap, threading, time, traceback, types, typing, unicodedata
import urllib.request, uuid, warnings, xml.etree.ElementTree, zipfile, zoneinfo

import numpy
import pandas
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

multiprocessing.process.ORIGINAL_DIR = "/data"


def prepare():
    """Gives each child the random state that a new interpreter would have."""
    numpy.random.seed(int.from_bytes(os.urandom(4)))
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
_warm.serve(prepare, *sys.argv[1:])
