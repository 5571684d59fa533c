# The warm part of paddock-runner-python: imports what programs import, then stands by and forks. The protocol is in
# ../README.md, "The warm part"; all but the imports is in warm/*.c. Nothing in /data may be looked at here, so it is off
# sys.path until the last import is done. Whatever is left here is in every program, so it must not be seen there.
# isort: off
import sys

sys.path.remove("/data")
sys.path.insert(0, "/usr/local/lib/sandbox")
import _warm

del sys.path[0], sys.modules["_warm"]

import atexit

atexit.register(_warm.before_modules_go)  # the first, so the last to be called

_warm.link_caches()

# What takes a program more than a few milliseconds to import and is asked for often enough to be worth a part of a
# millisecond in every run; README.md has the figures. A module that says something at its import is not for here.
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
import seaborn
import PIL.ImageDraw, PIL.ImageFont, PIL.PngImagePlugin, PIL.JpegImagePlugin
import openpyxl.chart
import lxml.html
import bs4
import requests
import tabulate

multiprocessing.process.ORIGINAL_DIR = "/data"


def prepare():
    """What a fresh interpreter would have of its own, in each child."""
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
gc.collect()
gc.disable()
gc.freeze()
_warm.keep_all()
_warm.serve(prepare)
