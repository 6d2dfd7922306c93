"""The compose files of docker/, as far as these files go: what each container
is made of.

services(FILE) is the list of services, each behind those that it depends on.
A member that is not known is an error, so that a test runs all that a file
says.
"""

import os

import yaml

# what a container by hand has in any case, or does not need
ALIKE = {"image", "build", "depends_on", "hostname", "restart", "cap_drop",
         "security_opt", "ports"}
KNOWN = ALIKE | {"environment", "read_only", "tmpfs", "volumes", "command",
                 "stop_grace_period"}


class Service:
    """A service: target is the stage of the Dockerfile; binds and volumes are
    pairs of a source (a path of the machine, or a name) and a place."""

    def __init__(self, name, text, folder):
        unknown = set(text) - KNOWN
        assert not unknown, (name, unknown)
        self.name = name
        self.text = text
        self.target = text["build"]["target"]
        self.environment = text.get("environment", {})
        self.read_only = text.get("read_only", False)
        self.tmpfs = text.get("tmpfs", "")
        self.command = text.get("command", [])
        self.grace = int(text.get("stop_grace_period", "10s").rstrip("s"))
        self.after = list(text.get("depends_on", {}))
        self.binds, self.volumes = [], []
        for volume in text.get("volumes", []):
            source, place = volume.split(":")[:2]
            if source.startswith("."):
                self.binds.append((os.path.normpath(
                    os.path.join(folder, source)), place))
            else:
                self.volumes.append((source, place))


def read(path):
    with open(path, encoding="utf-8") as file:
        return yaml.safe_load(file)


def services(path):
    text = read(path)["services"]
    left = {name: Service(name, service, os.path.dirname(path))
            for name, service in text.items()}
    ordered = []
    while left:
        ready = [service for service in left.values()
                 if not any(name in left for name in service.after)]
        assert ready, "services wait for each other: %s" % list(left)
        for service in ready:
            ordered.append(left.pop(service.name))
    return ordered
