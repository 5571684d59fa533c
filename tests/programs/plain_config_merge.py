# Merges nested settings over their defaults, checks them, and saves them as JSON.
# prints: server.port = 9000
# prints: Saved 6 settings to config.json
# makes: config.json
import json
from copy import deepcopy
from pathlib import Path

DEFAULTS = {"server": {"host": "localhost", "port": 8080}, "log": {"level": "info", "file": None}, "features": {"beta": False, "limit": 10}}
OVERRIDES = {"server": {"port": 9000}, "features": {"beta": True}}


def merge(base: dict, over: dict) -> dict:
    result = deepcopy(base)
    for key, value in over.items():
        if isinstance(value, dict) and isinstance(result.get(key), dict):
            result[key] = merge(result[key], value)
        else:
            result[key] = value
    return result


def flatten(settings: dict, prefix: str = ""):
    for key, value in settings.items():
        if isinstance(value, dict):
            yield from flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


config = merge(DEFAULTS, OVERRIDES)
assert 0 < config["server"]["port"] < 65536
for name, value in flatten(config):
    print(f"{name} = {value}")
Path("/data/config.json").write_text(json.dumps(config, indent=2))
print(f"Saved {len(list(flatten(config)))} settings to config.json")
