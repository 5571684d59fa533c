"""Whether the deployments for clusters are what their engines take: `make deployments`.

deploy/kubernetes/kustomization.yaml is built by `kubectl kustomize` and checked against the schemas of Kubernetes
itself, of the oldest and the newest version that is supported. deploy/swarm.yml is read by `docker stack config`. The job for
Nomad, deploy/nomad/paddock.nomad.hcl, is read as HCL 2, and by `nomad job validate` where that program is installed.
Nothing is started, and no cluster is needed. Needs kubectl, docker and the packages kubernetes-validate, PyYAML and
python-hcl2.
"""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import hcl2
import kubernetes_validate
import yaml

ROOT = Path(__file__).parents[2]
VERSIONS = ["1.29", "1.37"]


def output(*command, **variables):
    environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", **variables}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: {done.stderr}")
    return done.stdout


def kubernetes():
    objects = list(yaml.safe_load_all(output("kubectl", "kustomize", "deploy/kubernetes")))
    kinds = sorted(one["kind"] for one in objects)
    assert kinds == ["ConfigMap", "DaemonSet", "NetworkPolicy", "Service", "Service"], kinds
    for one in objects:
        for version in VERSIONS:
            kubernetes_validate.validate(one, version, strict=True)
    # The check can fail: an unknown key is refused.
    broken = next(one for one in objects if one["kind"] == "DaemonSet")
    pod = broken["spec"]["template"]["spec"]
    ports = {port["name"]: port["containerPort"] for port in pod["containers"][0]["ports"]}
    mounted = {mount["name"] for mount in pod["containers"][0]["volumeMounts"]}
    assert mounted == {volume["name"] for volume in pod["volumes"]}, mounted
    config = tomllib.loads((ROOT / "deploy/kubernetes/paddock.toml").read_text())
    for port, address in [("http", config["http"]["addr"]), ("peers", config["cluster"]["addr"])]:
        assert address.endswith(f":{ports[port]}"), (port, address)
    names = {one["metadata"]["name"] for one in objects if one["kind"] == "Service"}
    assert config["cluster"]["peers"][0].split(".")[0] in names, names
    pod["terminationGrace"] = 1
    try:
        kubernetes_validate.validate(broken, VERSIONS[0], strict=True)
    except kubernetes_validate.ValidationError:
        return
    sys.exit("an unknown key was not noticed")


def swarm():
    stack = yaml.safe_load(
        output("docker", "stack", "config", "--compose-file", "deploy/swarm.yml", PADDOCK_OBJECTS="s3://bucket/prefix")
    )
    service = stack["services"]["paddock"]
    assert service["deploy"]["mode"] == "global", service["deploy"]
    text = (ROOT / "deploy/swarm/paddock.toml").read_text()
    for name in ["PADDOCK_OBJECTS", "PADDOCK_NODE"]:
        assert name in service["environment"] and f'{{{{ env "{name}" }}}}' in text, name
        text = text.replace(f'{{{{ env "{name}" }}}}', "filled-in")
    config = tomllib.loads(text)
    assert config["cluster"]["peers"] == ["tasks.paddock:7946"], config["cluster"]
    secrets = {f"file:/run/secrets/{one['source']}" for one in service["secrets"]}
    used = {config["auth"]["token"], config["files"]["secret"], config["store"]["url"], config["cluster"]["key"]}
    assert secrets == used, (secrets, used)


def only(blocks, name):
    """The one block of a list that has this label."""
    found = [block[f'"{name}"'] for block in blocks if f'"{name}"' in block]
    assert len(found) == 1, (name, blocks)
    return found[0]


def nomad():
    path = ROOT / "deploy/nomad/paddock.nomad.hcl"
    job_file = hcl2.loads(path.read_text())
    job = only(job_file["job"], "paddock")
    assert job["type"] == '"system"', job["type"]
    group = only(job["group"], "paddock")
    task = only(group["task"], "paddock")
    # What is used is declared, and what is declared is used.
    declared = {name.strip('"') for block in job_file["variable"] for name in block if name.startswith('"')}
    used = set(re.findall(r"\bvar\.([a-z_]+)", path.read_text()))
    assert declared == used, declared ^ used
    ports = {name.strip('"'): port["static"] for block in group["network"][0]["port"]
             for name, port in block.items() if name.startswith('"')}
    assert {service["port"].strip('"') for service in group["service"]} <= set(ports), ports
    templates = {one["destination"].strip('"'): one["data"] for one in task["template"]}
    config, secrets = templates["local/paddock.toml"], templates["secrets/paddock.env"]
    config = "\n".join(line.strip() for line in config.splitlines() if "TOML" not in line)
    config = tomllib.loads(re.sub(r'\{\{.*?\}\}|\$\{.*?\}', "filled-in", config))
    for port, address in [("http", config["http"]["addr"]), ("peers", config["cluster"]["addr"])]:
        assert address.endswith(f":{ports[port]}"), (port, address)
    wanted = {config["auth"]["token"], config["files"]["secret"], config["store"]["url"], config["cluster"]["key"]}
    given = {f"env:{name}" for name in re.findall(r"^\s*(PADDOCK_\w+)=", secrets, re.MULTILINE)}
    assert wanted == given, wanted ^ given
    default = only(job_file["variable"], "peers")["default"].strip('"')
    peers = {service["name"].strip('"') for service in group["service"]}
    assert default == f"paddock-peers.service.consul:{ports['peers']}" and "paddock-peers" in peers, default
    if shutil.which("nomad"):
        given = ["image=paddock:1", "objects=s3://b/p", "public_url=https://p"]
        output("nomad", "job", "validate", *[word for one in given for word in ("-var", one)], str(path))
        return "nomad"
    return "its syntax alone (no nomad here)"


kubernetes()
swarm()
read = nomad()
print(f"deploy/kubernetes is valid for Kubernetes {' and '.join(VERSIONS)}; deploy/swarm.yml for docker stack; "
      f"deploy/nomad by {read}")
