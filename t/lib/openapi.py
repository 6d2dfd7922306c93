"""Each answer of a gateway against docs/openapi.yaml.

    serves(conf)        what nginx.conf has at which port: the locations with a
                        directive of KINDS
    forget(conf)        the gateway has ended, and its ports are free
    check(...)          an answer; each client of the tests calls this
    check_event(...)    an event of a stream
    drifts()            what did not fit since the last call; a fixture asks
                        after each test
    counts              (operation, status) -> how many answers were checked
    seen                (operation, status, kind) of each answer and event, see
                        lib/unseen.py

An answer is checked if the port is a gateway's, and if the path of the request
leads to a location with a directive of KINDS.  The operation is that of the
method and of the path below the location's prefix.  At any other location an
answer of the type application/problem+json is that of a guard, and has to be a
GuardRefusal.

These answers are not checked, and nothing else is left out:

* pages of nginx: text/html with a status from 300 on, as no answer of the
  module is
* answers of a location with an error_page, or a "return", for their status
* answers to a path that a rewrite leads to another location
* answers to bytes that have no request line, which a test sent by hand
* answers to another process, such as the clients of chaos/, which knows no
  gateway's configuration

The status has to be described for the operation, the headers that are required
have to be there, those of HEADERS may be there only if described, and the body
has to be valid.  HEAD is checked as GET, and of a lock LOCK as POST, UNLOCK as
DELETE; an answer to any other method has to be a MethodNotAllowed, a BadRequest
or a NotFound.
"""

import collections
import functools
import gzip
import json
import os
import re
from urllib.parse import unquote, urlsplit

import jsonschema
import yaml

# behind a slash that is not escaped; all other slashes are of a name
TOKEN = re.compile("./[A-Za-z0-9_-]{32}$")

TOP = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))
PAGE = os.path.join(TOP, "docs", "openapi.yaml")

HEADERS = ("Allow", "ETag", "Location", "Lock-Fencing-Token", "Lock-Token",
           "Retry-After", "X-Accel-Buffering")
API = "/locks/"
KINDS = {"zk_lock_api": API, "zk_lock_metrics": "/metrics",
         "zk_lock_health": "/health", "zk_lock_page": "/page"}
LOCK = API + "{name}"
METHODS = {"LOCK": "post", "UNLOCK": "delete"}      # of LOCK alone
PROBLEM = "application/problem+json"

counts = collections.Counter()
seen = set()
_drifts = []
_sites = {}                     # port -> Site


# the description

@functools.lru_cache()
def description():
    with open(PAGE, encoding="utf-8") as file:
        return yaml.load(file, yaml.CSafeLoader)


def resolved(node):
    """The node with the targets of all references in their places."""
    if isinstance(node, list):
        return [resolved(item) for item in node]
    if not isinstance(node, dict):
        return node
    here = {key: resolved(value) for key, value in node.items()
            if key != "$ref"}
    if "$ref" not in node:
        return here
    there = _target(node["$ref"])
    clash = set(here) & set(there) - {"description"}
    assert not clash, "%s beside %s" % (clash, node["$ref"])
    return dict(there, **here)


@functools.lru_cache(maxsize=None)
def _target(reference):
    target = description()
    for step in reference[2:].split("/"):
        target = target[step.replace("~1", "/").replace("~0", "~")]
    return resolved(target)


def flattened(schema):
    """An object with all members of the schemas in allOf, and no others.

    Says the same as unevaluatedProperties does, and is checked faster.
    """
    if isinstance(schema, list):
        return [flattened(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    schema = {key: flattened(value) for key, value in schema.items()}
    whole = dict(schema)
    for part in whole.pop("allOf", []):
        for key, value in part.items():
            if key in ("properties", "dependentSchemas"):
                whole[key] = dict(value, **whole.get(key, {}))
            elif key == "required":
                whole[key] = sorted(set(value) | set(whole.get(key, [])))
            else:
                assert key in ("type", "description"), key
    if "unevaluatedProperties" in whole:
        whole["additionalProperties"] = whole.pop("unevaluatedProperties")
    return whole


def validator(schema):
    schema = flattened(resolved(schema))
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


class Answer:
    """What a response of the description says, to be compared."""

    def __init__(self, response):
        response = resolved(response)
        headers = {name: (header.get("required", False),
                          validator(header["schema"]))
                   for name, header in response.get("headers", {}).items()}
        self.headers = headers
        self.absent = [name for name in HEADERS if name not in headers]
        self.content = {}       # media type -> the validator of the body
        self.events = {}        # media type -> event -> validator
        for media_type, content in response.get("content", {}).items():
            self.content[media_type] = validator(content["schema"])
            if "x-itemSchema" in content:
                self.events[media_type] = {
                    event["properties"]["event"]["const"]: validator(event)
                    for event in content["x-itemSchema"]["oneOf"]}

    def complaints(self, response, with_body):
        for name, (required, valid) in self.headers.items():
            values = response.headers.all(name)
            if required and not values:
                yield "no header %s" % name
            for value in values:
                for error in _errors(valid, value):
                    yield "%s: %s" % (name, error)
        for name in self.absent:
            if name in response.headers:
                yield "the header %s is not described" % name

        media_type = type_of(response)
        if media_type is None or not self.content:
            if media_type is not None or self.content:
                yield "the type %s" % media_type
        elif media_type not in self.content:
            yield "the type %s is not described" % media_type
        elif with_body and media_type not in self.events:
            yield from self._body(response, media_type)

    def _body(self, response, media_type):
        body = response.body
        if response.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        try:
            body = body.decode("utf-8")
            if not media_type.startswith("text/"):
                body = json.loads(body)
        except ValueError as error:
            yield "the body: %s" % error
            return
        errors = list(_errors(self.content[media_type], body))
        if (not errors and media_type == PROBLEM
                and body["status"] != response.status):
            errors.append("the body has another status")
        yield from errors


def _errors(valid, value):
    if not valid.is_valid(value):
        yield jsonschema.exceptions.best_match(
            valid.iter_errors(value)).message


def type_of(response):
    media_type = response.headers.get("Content-Type")
    return media_type and media_type.split(";")[0]


@functools.lru_cache(maxsize=None)
def answers_of(path, method):
    """The id of an operation, and status -> Answer; None if not described."""
    operation = description()["paths"][path].get(method)
    if operation is None:
        return None
    return operation["operationId"], {
        int(status): Answer(response)
        for status, response in operation["responses"].items()}


@functools.lru_cache(maxsize=None)
def shared_answer(name):
    return Answer(description()["components"]["responses"][name])


# locations

TOKENS = re.compile(r"""#[^\n]*|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|[{};]"""
                    r"""|[^\s{};"'](?:\$\{\w+\}|[^\s{};])*""")


def directives(tokens):
    """(words, the directives of the block or None) of a configuration."""
    words, found = [], []
    for token in tokens:
        if token.startswith("#"):
            continue
        if token == "}":
            break
        if token == ";":
            found.append((words, None))
        elif token == "{":
            found.append((words, directives(tokens)))
        else:
            words.append(token.strip("\"'"))
            continue
        words = []
    return found


def within(block, name):
    return [(words, inner) for words, inner in block if words[:1] == [name]]


class Location:
    def __init__(self, words, block, pages):
        self.modifier = words[1] if len(words) > 2 else ""
        # a named group of PCRE, as Python writes it; no path has such a text
        self.path = re.sub(r"\(\?<(?=\w)", "(?P<", words[-1])
        self.kind = next((KINDS[words[0]] for words, _ in block
                          if words[0] in KINDS), None)
        # of the nearest level, as nginx inherits them
        self.pages = (error_pages(block) or pages) | returned(block)


def returned(block):
    """The statuses that nginx itself answers with, if a condition holds."""
    found = {words[1] for words, _ in within(block, "return")}
    for _, inner in within(block, "if"):
        found |= returned(inner)
    return found


def error_pages(block):
    return {word for words, _ in within(block, "error_page")
            for word in words[1:-1]}


class Site:
    """The locations of a server, of which find() chooses as nginx does."""

    def __init__(self, server, pages):
        self.locations = []
        self._add(server, error_pages(server) or pages)

    def _add(self, block, pages):
        for words, inner in within(block, "location"):
            self.locations.append(Location(words, inner, pages))
            self._add(inner, self.locations[-1].pages)

    def find(self, path):
        best = None
        for location in self.locations:
            if location.modifier == "=" and location.path == path:
                return location
            if (location.modifier in ("", "^~")
                    and path.startswith(location.path)
                    and (best is None
                         or len(location.path) > len(best.path))):
                best = location
        if best is None or best.modifier != "^~":
            for location in self.locations:
                if location.modifier.startswith("~") and re.search(
                        location.path, path,
                        re.I if location.modifier == "~*" else 0):
                    return location
        return best


def _servers(conf):
    """(port, server, the error pages of http) of a configuration."""
    for _, http in within(directives(iter(TOKENS.findall(conf))), "http"):
        for _, server in within(http, "server"):
            for words, _ in within(server, "listen"):
                port = re.search(r"(?:^|:)(\d+)$", words[1])
                if port:
                    yield int(port.group(1)), server, error_pages(http)


def serves(conf):
    sites = {}
    for port, server, pages in _servers(conf):
        sites.setdefault(port, Site(server, pages))
    _sites.update(sites)


def forget(conf):
    for port, _, _ in _servers(conf):
        _sites.pop(port, None)


# answers

def place(port, target):
    """(Location or None, path of the description or None) of a request."""
    site = _sites.get(port)
    if site is None or target is None:
        return None, None
    raw = urlsplit(target).path if "://" in target else target.split("?")[0]
    path = re.sub("/+", "/", unquote(raw, "latin-1"))
    location = site.find(path)
    if location is None or location.kind is None:
        return location, None
    if location.kind != API:
        return location, location.kind
    below = (raw[len(location.path):] if raw.startswith(location.path)
             else "name").lstrip("/")
    return location, API + ("" if not below else "{name}/{token}"
                            if TOKEN.search(below) else "{name}")


def drifts():
    """What did not fit since the last call."""
    found = _drifts[:]
    del _drifts[:]
    return found


def check(port, asked, response, with_body=True):
    """Notes what does not fit; asked is (method, target), or None."""
    if port not in _sites or asked is None:
        return
    method, target = asked
    location, path = place(port, target)
    operation, answer = _expected(location, path, method, response)
    if operation is None:
        return
    counts[operation, response.status] += 1
    _see(operation, response)
    complaints = (["the status is not described"] if answer is None else
                  answer.complaints(response, with_body and method != "HEAD"))
    _drifts.extend("%s, %s %s: %s: %r" % (operation, method, target, complaint,
                                          response)
                   for complaint in complaints)


def _see(operation, response):
    kind = type_of(response) or "-"
    if kind == PROBLEM:
        if not response.body:       # an answer to HEAD
            return
        kind = _problem(response.body)
    seen.add((operation, str(response.status), kind))


def _problem(body):
    """The type of a problem."""
    try:
        return str(json.loads(body)["type"])
    except (ValueError, KeyError, TypeError):
        return "-"


def _expected(location, path, method, response):
    """(operation, Answer or None), or (None, None) for what is not checked."""
    if path is None:
        return (("guard", shared_answer("GuardRefusal"))
                if type_of(response) == PROBLEM else (None, None))
    if ((type_of(response) == "text/html" and response.status >= 300)
            or str(response.status) in location.pages):
        return None, None
    found = answers_of(path, described_method(path, method))
    if found is not None:
        return found[0], found[1].get(response.status)
    return _other(response)


def _other(response):
    """What may be told of any method at a location of the module."""
    return "other", {405: shared_answer("MethodNotAllowed"),
                     400: shared_answer("BadRequest"),
                     404: shared_answer("NotFound")}.get(response.status)


def described_method(path, method):
    if method == "HEAD":
        return "get"
    return (path == LOCK and METHODS.get(method)) or method.lower()


def check_event(port, asked, response, name, data):
    """Notes what does not fit of an event of a stream."""
    if port not in _sites or asked is None:
        return
    method, target = asked
    location, path = place(port, target)
    operation, answer = _expected(location, path, method, response)
    if answer is None:
        return
    counts[operation, name] += 1
    seen.add((operation, "event", name))
    valid = answer.events.get(type_of(response), {}).get(name)
    errors = (["the event is not described"] if valid is None
              else _errors(valid, dict(data, event=name)))
    _drifts.extend("%s, %s %s: %s: %s: %s" % (operation, method, target, name,
                                              error, data) for error in errors)


def requests_of(data):
    """(method, target) of each request line in bytes that a test sends."""
    return [(method.decode("latin-1"), target.decode("latin-1"))
            for method, target in re.findall(
                rb"([A-Z]+) (\S+) HTTP/1\.[01]\r?\n", data)]
