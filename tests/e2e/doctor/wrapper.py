#!/usr/bin/python3
# An OCI runtime that leaves out one protection, which its own name determines. Everything else is runc's.
import errno
import json
import os
import subprocess
import sys


def mount(spec, place):
    return next(m for m in spec["mounts"] if m["destination"] == place)


def remount(spec, options):
    subprocess.run(["mount", "-o", "remount," + options, mount(spec, "/data")["source"]], check=True)


def unname(spec, *names):
    for rule in spec["linux"]["seccomp"]["syscalls"]:
        rule["names"] = [name for name in rule["names"] if name not in names]


def leave_out(what, spec):
    process, linux = spec["process"], spec["linux"]
    if what == "groups":
        process["user"]["additionalGids"] = [0]
    elif what == "capabilities":
        process["capabilities"] = {kind: ["CAP_NET_RAW"] for kind in ("bounding", "effective", "permitted", "inheritable", "ambient")}
    elif what == "privileges":
        process["noNewPrivileges"] = False
    elif what == "seccomp":
        del linux["seccomp"]
    elif what == "call":
        linux["seccomp"]["syscalls"][0]["names"].append("kcmp")
    elif what == "cores":
        for limit in process["rlimits"]:
            if limit["type"] == "RLIMIT_CORE":
                limit["soft"] = limit["hard"] = 0
    elif what == "segments":
        del linux["sysctl"]["kernel.shm_rmid_forced"]
    elif what == "network":
        linux["namespaces"] = [n for n in linux["namespaces"] if n["type"] != "network"]
        # Without this the host itself would be changed: the engine's hook sets up the namespace, and these
        # belong to it.
        spec.pop("hooks", None)
        linux["sysctl"] = {key: value for key, value in linux["sysctl"].items() if not key.startswith("net.")}
    elif what == "root":
        spec["root"]["readonly"] = False
    elif what == "data":
        remount(spec, "size=10%")
    elif what == "inodes":
        remount(spec, "nr_inodes=0")
    elif what == "tmp":
        tmp = mount(spec, "/tmp")
        tmp["options"] = [option for option in tmp["options"] if not option.startswith("size=")]
    elif what == "alias":
        alias = mount(spec, "/workspace")
        alias.update(type="tmpfs", source="tmpfs", options=["size=4k"])
    elif what == "memory":
        linux["resources"]["memory"] = {}
    elif what == "loose-memory":
        memory = linux["resources"]["memory"]
        memory["limit"], memory["swap"] = 2 * memory["limit"], 2 * memory["limit"]
    elif what == "swap":
        linux["resources"]["memory"]["swap"] = -1
    elif what == "pids":
        linux["resources"]["pids"]["limit"] = -1
    elif what == "cpu":
        linux["resources"]["cpu"] = {}
    elif what == "landlock":
        # As from a kernel that does not have them.
        calls = ["landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self"]
        unname(spec, *calls)
        absent = {"names": calls, "action": "SCMP_ACT_ERRNO", "errnoRet": errno.ENOSYS}
        linux["seccomp"]["syscalls"].append(absent)
    elif what == "neither":
        leave_out("landlock", spec)
        leave_out("notification", spec)
    elif what == "notification":
        # A filter may be installed, but not with SECCOMP_FILTER_FLAG_NEW_LISTENER.
        unname(spec, "seccomp")
        plain = {"index": 1, "value": 8, "valueTwo": 0, "op": "SCMP_CMP_MASKED_EQ"}
        rule = {"names": ["seccomp"], "action": "SCMP_ACT_ALLOW", "args": [plain]}
        spec["linux"]["seccomp"]["syscalls"].append(rule)
    elif what == "crun":
        # Files of names are mounted only from where the engine writes its own.
        spec["mounts"] = [m for m in spec["mounts"] if "/volumes/" not in m["source"] or not m["destination"].startswith("/etc/")]
    elif what == "start":
        sys.exit("starting is switched off")


def add_route(pid_file):
    # Over lo, so that no interface shows it.
    with open(pid_file) as file:
        pid = file.read()
    subprocess.run(["nsenter", "-t", pid, "-n", "ip", "route", "add", "default", "dev", "lo"], check=True)


arguments = sys.argv[1:]
if "create" in arguments:
    path = os.path.join(arguments[arguments.index("--bundle") + 1], "config.json")
    with open(path) as file:
        config = json.load(file)
    leave_out(os.path.basename(sys.argv[0]), config)
    with open(path, "w") as file:
        json.dump(config, file)
    if os.path.basename(sys.argv[0]) == "route":
        subprocess.run(["runc", *arguments], check=True)
        add_route(arguments[arguments.index("--pid-file") + 1])
        sys.exit()
os.execvp("runc", ["runc", *arguments])
