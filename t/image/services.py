#!/usr/bin/python3
"""Prints what scripts/test-image makes of a compose file.

usage: services.py COMPOSE_FILE [after SERVICE]

With "after" only the services that SERVICE depends on, or else all services.
A line for each service, with tabs between the words: the name, the stage of the
Dockerfile, the seconds of its stop_grace_period, and options of a container,
each in one word:

    ro                  the root is read-only
    tmpfs=PLACE         as in the compose file
    env=NAME=VALUE
    bind=SOURCE:PLACE
    volume=NAME:PLACE
    command=WORD        one for each word
"""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from lib.compose import services        # noqa: E402


def words(service):
    yield from (service.name, service.target, str(service.grace))
    if service.read_only:
        yield "ro"
    if service.tmpfs:
        yield "tmpfs=" + service.tmpfs
    for pair in service.environment.items():
        yield "env=%s=%s" % pair
    for pair in service.binds:
        yield "bind=%s:%s" % pair
    for pair in service.volumes:
        yield "volume=%s:%s" % pair
    for word in service.command:
        yield "command=" + word


def main(path, what=None, name=None):
    for service in services(os.path.abspath(path)):
        if what is None:
            print("\t".join(words(service)))
        elif service.name == name:
            print("\n".join(service.after))


main(*sys.argv[1:])
