"""Whether the deployments for clusters are what their engines take: `make deployments`.

deploy/kubernetes/kustomization.yaml is built by `kubectl kustomize` and checked against the schemas of Kubernetes
itself, of the oldest and the newest version that is supported. deploy/swarm.yml is read by `docker stack config`. Nothing is started, and
no cluster is needed. Needs kubectl, docker and the packages kubernetes-validate and PyYAML.
"""

import subprocess
import sys
import tomllib
from pathlib import Path

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


kubernetes()
swarm()
print(f"deploy/kubernetes is valid for Kubernetes {' and '.join(VERSIONS)}; deploy/swarm.yml for docker stack")
