"""Fetches packages for programs: `fetch.py NAME==VERSION...` leaves them, with what they need, in the working directory.

../README.md, "How packages are fetched", has the contract. pip does the work: it resolves against what the image has,
takes wheels only, so that nothing of a package runs (wheels_only.py), and compares each file with the hash that the index gave
for it. This file must never import or run anything that was fetched, and must leave only what belongs to the packages.
"""

import compileall
import json
import os
import py_compile
import re
import shutil
import subprocess
import sys

PIP = "/usr/local/share/sandbox/wheels_only.py"
WRONG, UNAVAILABLE = 65, 69  # EX_DATAERR, EX_UNAVAILABLE
OPTIONS = ["--disable-pip-version-check", "--no-input", "--no-color", "--retries", "2", "--timeout", "20"]
# Words of pip for an index that cannot be reached, or that does not answer as one.
OUT_OF_REACH = re.compile(
    r"Max retries exceeded|connection broken|ConnectionError|ConnectTimeout|ReadTimeout|NewConnectionError|SSLError"
    r"|HTTP error|HTTPError|ProxyError|IncompleteRead|Connection aborted|incomplete-download"
)
SHOWN = 8  # versions that an error lists


def end(code, sentence):
    sys.stderr.write(" ".join(sentence.split())[:1500] + "\n")
    sys.exit(code)


def run(*arguments):
    """Runs pip. It has ended the program if pip failed."""
    index = os.environ.get("SANDBOX_INDEX")
    if index:
        # An operator who names an index without TLS trusts the network to it.
        host = re.match(r"http://([^/]+)", index)
        index = ["--index-url", index, *(["--trusted-host", host[1]] if host else [])]
    else:
        index = []
    done = subprocess.run(
        [sys.executable, "-I", "-B", PIP, *arguments, *OPTIONS, *index, "--only-binary", ":all:"],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, encoding="utf-8", errors="replace",
    )
    if done.returncode == UNAVAILABLE:  # wheels_only.py; pip has no such code
        end(UNAVAILABLE, done.stderr)
    if done.returncode != 0:
        explain(done.stderr)


def explain(said):
    """Ends with what pip said, in fewer words."""
    if "No space left on device" in said or "File too large" in said:
        end(WRONG, "the packages need more room than a fetch has")
    if "DO NOT MATCH THE HASHES" in said or "HashMismatch" in said:
        lines = [line.strip() for line in said.splitlines()]
        which = next((line for line in lines if re.match(r"\S+ from (http|file)", line)), "a file of a package")
        end(UNAVAILABLE, f"the index serves a file that does not match its hash: {which.split(' from ')[0]}")
    missing = re.search(r"satisfies the requirement (\S+)(?: \(from [^)]*\))? \(from versions: ([^)]*)\)", said)
    # pip also says this of an index that did not answer at all.
    if missing and not (missing[2] == "none" and OUT_OF_REACH.search(said)):
        name, versions = missing[1], missing[2].split(", ")
        if versions == ["none"]:
            end(WRONG, f"{name}: the index has no package of this name, or no wheel of it that fits Python "
                f"{sys.version_info[0]}.{sys.version_info[1]} on this machine")
        more = "" if len(versions) <= SHOWN else f"{len(versions) - SHOWN} older ones, "
        end(WRONG, f"{name}: the index has no wheel of this version that fits this image; it has {more}"
            + ", ".join(versions[-SHOWN:]))
    if OUT_OF_REACH.search(said):
        last = [line for line in said.splitlines() if OUT_OF_REACH.search(line)]
        end(UNAVAILABLE, f"the index cannot be reached, or breaks off: {last[-1] if last else said}")
    errors = [line.removeprefix("ERROR:").strip() for line in said.splitlines() if line.startswith("ERROR:")]
    conflict = re.search(r"The conflict is caused by:\n(.*?)\n\n", said, re.DOTALL)
    end(WRONG, (errors[0] if errors else said[-600:] or "pip failed") + (f" ({conflict[1]})" if conflict else ""))


def installed(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def main():
    wanted = sys.argv[1:]
    here = os.getcwd()
    scratch = os.path.join(here, ".fetch")
    os.mkdir(scratch)
    os.environ["TMPDIR"] = scratch  # on the file system of the packages, so that pip renames instead of copying
    cache = os.path.join(scratch, "cache")
    report = os.path.join(scratch, "report.json")
    # What has to be added to the image, and nothing is installed. A package that the image has in this version is not added.
    run("install", "--dry-run", "--quiet", "--report", report, "--cache-dir", cache, *wanted)
    with open(report, encoding="utf-8") as file:
        added = json.load(file)["install"]
    locked, lines = [], []
    for one in added:
        name, version = installed(one["metadata"]["name"]), one["metadata"]["version"]
        hashes = one["download_info"].get("archive_info", {}).get("hashes", {})
        known = [f"--hash={kind}:{hashes[kind]}" for kind in ("sha512", "sha384", "sha256") if kind in hashes]
        if not known:
            end(UNAVAILABLE, f"{name}=={version}: the index gives no hash that can be trusted (sha256 or longer)")
        locked.append(f"{name}=={version}")
        lines.append(f"{name}=={version} {known[0]}\n")
    if lines:
        lock = os.path.join(scratch, "lock.txt")
        with open(lock, "w", encoding="utf-8") as file:
            file.writelines(lines)
        run("install", "--quiet", "--no-deps", "--no-compile", "--require-hashes", "--cache-dir", cache,
            "--target", here, "--requirement", lock)
    shutil.rmtree(scratch)
    # Byte code for a directory that nobody can write later: without it, every run would compile the packages again.
    compileall.compile_dir(here, quiet=2, workers=1, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    print(json.dumps({"locked": sorted(locked)}))


if __name__ == "__main__":
    main()
