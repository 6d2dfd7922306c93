"""What docs/openapi.yaml describes, and no test sees.

    lib/unseen.py FILE

FILE has a line "OPERATION STATUS KIND" for each answer that the tests saw, and
for each event with "event" as the status.  The kind is the type of a problem,
the media type of any other answer, "-" without a body, and the name of an
event.  conftest.py writes the lines at the end of a run, if the variable
OPENAPI_SEEN names the file; the processes of a parallel run share the file.

The program prints the lines that are described and not in the file, and fails
if there are any.
"""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from lib import openapi     # noqa: E402

# a stream says this after 15 s, and the tests' clients only count the lines
UNCHECKED = {"alive"}


def save(path):
    """Appends a line for each answer that this process saw."""
    with open(path, "a", encoding="utf-8") as file:
        file.write("".join(" ".join(kind) + "\n"
                           for kind in sorted(openapi.seen)))


def described():
    """(operation, status, kind) of all that is described."""
    for path in openapi.description()["paths"].values():
        for method, operation in path.items():
            if method == "parameters":
                continue
            name = operation["operationId"]
            for status, response in operation["responses"].items():
                content = openapi.resolved(response).get("content", {})
                if not content and status >= "400":
                    continue        # a page of nginx, which is not checked
                for kind in kinds(content):
                    yield name, status, kind
                for kind in events(content):
                    yield name, "event", kind


def kinds(content):
    for media_type, body in content.items():
        if media_type == openapi.PROBLEM:
            yield from constants(body["schema"], "type")
        else:
            yield media_type
    if not content:
        yield "-"


def events(content):
    for body in content.values():
        yield from constants(body.get("x-itemSchema", {}), "event") - UNCHECKED


def constants(schema, member):
    """What a member of the schema, or of one of its choices, has to be."""
    choices = schema.get("anyOf") or schema.get("oneOf") or [schema]
    return {choice["properties"][member]["const"] for choice in choices
            if "properties" in choice}


def unseen(path):
    with open(path, encoding="utf-8") as file:
        return set(described()) - {tuple(line.split()) for line in file}


if __name__ == "__main__":
    missing = sorted(unseen(sys.argv[1]))
    for line in missing:
        print("no test sees:", *line)
    sys.exit(bool(missing))
