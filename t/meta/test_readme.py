"""README.md and docs/ against the source: the pages describe what there is, and
docs/openapi.yaml describes what the pages do.

Directives with contexts, variables, statuses, metrics, the words of
$zk_lock_outcome, events and labels, each compared both ways.  The tests, the
examples and the pages that are named there have to exist.
"""

import glob
import json
import os
import re
import subprocess

import pytest

from lib import openapi

TOP = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))
NGINX = "/usr/share/nginx/src/src/http/ngx_http_request.h"

FLAGS = [("NGX_HTTP_MAIN_CONF", "http"), ("NGX_HTTP_SRV_CONF", "server"),
         ("NGX_HTTP_LOC_CONF", "location")]

# no answers: where nginx's special statuses begin, a client that has left, a
# client that does not read the stream, and is cut off, and a connection that is
# closed without an answer
NO_STATUS = {"NGX_HTTP_SPECIAL_RESPONSE", "NGX_HTTP_CLIENT_CLOSED_REQUEST",
             "NGX_HTTP_REQUEST_TIME_OUT", "NGX_HTTP_CLOSE"}

# the files that answer
ANSWERS = ["acquire", "admin", "answer", "api", "args", "calls", "guard",
           "health", "list", "page", "repeat", "request", "require", "result",
           "several", "stream", "terraform", "watch"]
PAGES = ["README.md", "SECURITY.md", "bench/README.md", "t/README.md",
         "t/chaos/README.md", "t/fuzz/README.md"]
PAGES += sorted("docs/" + name for name in os.listdir(os.path.join(TOP, "docs"))
                if name.endswith(".md"))


def read(*names):
    with open(os.path.join(TOP, *names), encoding="utf-8") as file:
        return file.read()


def source(name):
    return read("src", *name.split("/"))


def sources():
    return "".join(read(name) for name in sorted(
        glob.glob(os.path.join(TOP, "src", "**", "*.[ch]"), recursive=True)))


def answers():
    return "".join(source("http/%s.c" % name) for name in ANSWERS)


def results():
    """Of each row of the tables of results the word and the reason."""
    rows = re.findall(r'\{ ZKL_\w+, NGX_HTTP_\w+,\s+ngx_string\("(\w+)"\),'
                      r'\s+(?:"(\w+)"|NULL),', source("http/result.c"))
    assert len(rows) == source("http/result.c").count("{ ZKL_")
    return rows


def constant(file, what):
    return int(re.search(r"(?m)^#define %s\s+(\d+)" % what, file).group(1))


def section(title, page):
    """The text below a heading, to the next heading of any level."""
    text = read(*page.split("/")).split("\n%s\n" % title, 1)[1]
    return re.split(r"(?m)^#+ ", text, maxsplit=1)[0]


def words(text):
    """The code in the first cells of tables, and before the colons of lists."""
    heads = re.findall(r"(?m)^\| (`.*?) \|", text)
    heads += re.findall(r"(?m)^\* (`\w+`(?:,\s+`\w+`)*)", text)
    return re.findall(r"`(\w+)`", " ".join(heads))


def syntax(directive):
    """The syntax of a directive as the page tells it, in one line."""
    found = re.search(r"(?m)^    Syntax: +(%s\b[^;]*;)$" % directive,
                      section("### " + directive, "docs/directives.md"))
    return " ".join(found.group(1).split()) if found else None


def test_directives():
    table = re.findall(r'\{ ngx_string\("(zk_lock\w*)"\),\s*([A-Z0-9_|]+),',
                       source("module.c"))
    assert table
    headings = re.findall(r"(?m)^### (zk_lock\w*)$",
                          read("docs", "directives.md"))
    assert headings == [name for name, _ in table]

    for name, flags in table:
        text = section("### " + name, "docs/directives.md")
        contexts = [word for flag, word in FLAGS if flag in flags.split("|")]
        assert syntax(name), name
        assert re.search(r"(?m)^    Default: +(none|%s .*;)$" % name,
                         text), name
        assert re.search(r"(?m)^    Context: +%s$" % ", ".join(contexts),
                         text), name


def test_variables():
    table = re.findall(r'\{ ngx_string\("(zk_lock\w*)"\)',
                       source("http/variables.c"))
    assert table
    headings = re.findall(r"(?m)^### \$(zk_lock\w*)$",
                          read("docs", "directives.md"))
    assert headings == table


def test_parameters():
    """zk_lock and zk_lock_require take what their sections tell."""
    for name, function in (("zk_lock", "ngx_http_zk_lock_rule_parameter"),
                           ("zk_lock_require",
                            "ngx_http_zk_lock_require_rule")):
        code = re.search(r"(?ms)^%s\(.*?^}" % function,
                         source("conf.c")).group(0)
        used = set(re.findall(r'\bvalue(?:\[i\](?:\.data)?)?, "(\w+)', code))
        assert used
        assert set(re.findall(r"\[(\w+)", syntax(name))) == used, name
        told = words(section("### " + name, "docs/directives.md"))
        assert sorted(told) == sorted(used), name


def test_changes():
    """The first release names all directives."""
    text = read("CHANGES")
    for file in "module.c", "http/variables.c":
        for name in re.findall(r'\{ ngx_string\("(zk_lock\w*)"\)',
                               source(file)):
            assert re.search(r"\b%s\b" % name, text), name


def http_statuses():
    with open(NGINX, encoding="utf-8") as file:
        text = file.read() + source("http/answer.h")
    # of a kind of problem the last digits
    return {name: int(value) for name, value in re.findall(
        r"(?m)^#define (NGX_HTTP_\w+)\s+\d?([1-5]\d\d)$", text)
        if name not in NO_STATUS}


def test_statuses():
    values = http_statuses()
    used = {values[name]
            for name in re.findall(r"\bNGX_HTTP_[A-Z_]+\b", answers())
            if name in values}
    assert 201 in used and 503 in used

    told = {int(item) for item in re.findall(
        r"(?m)^\* \*\*(\d{3})\*\*: ", section("## Statuses", "docs/api.md"))}
    assert told == used


def outcomes():
    """All words that src/ can set."""
    used = set(re.findall(
        r'ngx_str_set\(&(?:\w+(?:->|\.))*outcome,\s*"(\w+)"\)', sources()))
    return used | {word for word, _ in results()} | guard_words()


def test_outcomes():
    used = outcomes()
    assert used
    told = words(section("### $zk_lock_outcome", "docs/directives.md"))
    assert sorted(told) == sorted(used)


def problems():
    """(status, name) of each type in answer.c; status 0 is for all others."""
    statuses = dict(http_statuses(), **{"0": 0})
    rows = re.findall(r'\{?\s*(NGX_HTTP_\w+|0),\s+"/problems/([\w-]+)"',
                      source("http/answer.c"))
    assert len(rows) == source("http/answer.c").count("/problems/")
    return [(statuses[status], name) for status, name in rows]


def test_problems():
    """The page lists each type with the status that the type goes with."""
    told = re.findall(r"(?m)^\* `/problems/([\w-]+)`, (\d+): ",
                      section("## Types of problems", "docs/failures.md"))
    assert sorted(told) == sorted((name, str(status or 500))
                                  for status, name in problems())


def guard_words():
    return set(re.findall(r'guard_(?:told|waited)\(guard, "(\w+)"\)',
                          source("http/guard.c")))


def test_guards():
    """The words and the types that a guarded request is told exist."""
    types = {name for _, name in problems()}
    outcomes = words(section("### $zk_lock_outcome", "docs/directives.md"))
    rows = [[cell.strip(" `") for cell in line.strip("|").split("|")]
            for line in section("## What a client sees",
                                "docs/guard.md").splitlines()
            if line.startswith("| ")][2:]
    assert {row[2] for row in rows if row[2]} <= types
    told = {row[3] for row in rows if row[3]}
    assert told <= set(outcomes)

    assert guard_words() and guard_words() <= told


def table(heading, page):
    """The first cell of each row, and the second, without the head."""
    rows = re.findall(r"(?m)^\| (?:`(.*?)`|[^|`]*) \| (.*?) \|",
                      section(heading, page))
    return [row for row in rows if row[0]]


def metrics():
    """The metrics of http/metrics.c, in order, and the type of each."""
    text = source("http/metrics.c")
    names = re.findall(r'"(zk_lock_\w+(?:\{\w+=\\"\w+\\"\})?) %', text)
    for name, label in re.findall(
            r'\{ "(\w+)", (?:"[^"]*"|NULL),\s+(?:"(\w+=\\"\w+\\")"|NULL),',
            text):
        names.append("zk_lock_%s_seconds%s"
                     % (name, "{%s}" % label if label else ""))
    names.append("zk_lock_requests_total{call,outcome}")
    types = dict(re.findall(r"# TYPE (zk_lock_\w+) (\w+)", text))
    return [(name.replace("\\", ""),
             types.get(name.split("{")[0], "histogram")) for name in names]


def test_metrics():
    used = metrics()
    assert len(used) > 20 and len({kind for _, kind in used}) == 3
    assert table("## Metrics", "docs/monitoring.md") == used


def strings(name):
    """The strings of an array of http/metrics.c."""
    return re.findall(r'"(\w+)"', re.search(
        r"(?s)[ *]%s\[\] = \{(.*?)\};" % name,
        source("http/metrics.c")).group(1))


def test_counted():
    """Each word of $zk_lock_outcome is counted, and there is room to count."""
    own = ["invalid", "passed", "refused"]
    words_ = strings("ngx_http_zk_lock_words")
    assert words_[:3] == own and len(words_) == len(set(words_))
    assert sorted(words_) == sorted(outcomes() | set(own))

    calls = strings("ngx_http_zk_lock_types")
    named = re.findall(r"NGX_HTTP_ZK_LOCK_(\w+)", re.search(
        r"typedef enum \{([^}]*)\} ngx_http_zk_lock_type_e;",
        source("http/request.h")).group(1))
    assert [name.lower() for name in named] == calls
    told = table("## Calls and outcomes", "docs/monitoring.md")
    assert [name for name, _ in told] == calls

    counters = source("shm/counters.h")
    assert constant(counters, "ZKL_COUNTED_CALLS") >= len(calls)
    assert constant(counters, "ZKL_COUNTED_OUTCOMES") >= len(words_)
    longest = max(int(bounds.count(",")) for bounds in re.findall(
        r"(?s)zkl_counters_\w+\[\] = \{(.*?)\};", source("shm/counters.c")))
    assert constant(counters, "ZKL_BOUNDS_MAX") >= longest


def test_health():
    """The reasons of zk_lock_health, in the order in which they are found."""
    used = re.findall(r'return "(\w+)";', source("http/health.c"))
    told = table("### zk_lock_health", "docs/directives.md")
    assert used and [name for name, _ in told] == used
    for name in re.findall(r'(?:write_text|boolean|integer)\(json, "(\w+)"',
                           source("http/health.c")):
        assert "* `%s`" % name in section("### zk_lock_health",
                                          "docs/directives.md"), name


def test_alerts():
    told = table("## Alert rules and a dashboard", "docs/monitoring.md")
    files = sorted(os.listdir(os.path.join(TOP, "monitoring")))
    alerts = re.findall(r"(?m)^  - alert: (\w+)$",
                        read("monitoring", "alerts.yml"))
    names = [name for name, _ in told]
    assert names[len(files):] == alerts
    assert sorted(names[:len(files)]) == files


def test_tests():
    """Each failure names a test, and each test that a page names exists."""
    failures = re.split(r"(?m)^### ", read("docs", "failures.md"))[1:]
    assert failures
    for failure in failures:
        tests = failure.split("* **Tests**: ", 1)[1].split("\n\n")[0]
        for name in tests.split(","):
            assert re.fullmatch(r"`test_\w+\.py::test_\w+`",
                                name.strip()), failure

    for file, name in re.findall(r"`(\w+\.py)::(\w+)`",
                                 "".join(read(page) for page in PAGES)):
        paths = glob.glob(os.path.join(TOP, "t", "*", file))
        assert len(paths) == 1, file
        assert re.search(r"(?m)^def %s\(" % name, read(paths[0])), (
            "no %s in %s" % (name, file))


def test_limits():
    """Numbers of the pages that are constants of the source."""
    text = " ".join((read("docs", "api.md") + read("docs", "directives.md")
                     + read("docs", "guarantees.md")).split())
    name = read("src", "base", "name.h")
    json = read("src", "base", "json.h")

    assert "1 to %d bytes" % constant(name, "ZKL_NAME_MAX") in text
    assert "at most %d bytes" % constant(name, "ZKL_PATH_MAX") in text
    assert "up to %d bytes" % constant(json, "ZKL_OWNER_MAX") in text
    assert "up to %d levels" % constant(json, "ZKL_DATA_DEPTH") in text
    assert constant(json, "ZKL_DATA_MAX") == 1024 and "1 KiB" in text
    assert constant(source("http/args.h"), "NGX_HTTP_ZK_LOCK_BODY_MAX") == 8192
    assert "%s bytes of paths" % format(constant(
        source("zk/session.h"), "ZKL_PATH_BYTES"), ",") in text
    assert "At most %d claims" % constant(
        source("core/call.h"), "ZKL_LIST_MAX") in text
    assert "a cell of %d bytes, or more in a row if the path of its lock " \
        "has more than %d bytes." % cell() in text
    each = (constant(name, "ZKL_PREFIX_MAX") + 10 + 1 + 4)
    assert "its lock's path and %d bytes" % each in text
    assert "many may hold the lock, 1 to %d" % constant(
        name, "ZKL_PERMITS_MAX") in text
    assert "all who hold the lock, up to %d" % constant(
        source("core/call.h"), "ZKL_MEMBERS_MAX") in text

    fixed, each = re.search(r"n = (\d+) \+ (\d+) \* \(ngx_ncpu",
                            source("shm/layout.c")).groups()
    assert "is %s and %s for each processor, at most %d." % (
        fixed, each, constant(source("shm/layout.h"),
                              "ZKL_SLOTS_MAX")) in text


def cell():
    """The bytes of a cell, and the bytes that a path can take there."""
    text = source("shm/layout.h")
    bits = 64
    sizes = {"ngx_atomic_t": 8, "int64_t": 8, "uint64_t": 8, "uint32_t": 4,
             "uint16_t": 2, "uint8_t": 1, "u_char": 1}
    counts = {"ZKL_RANDOM_LEN": constant(read("src", "base", "name.h"),
                                             "ZKL_RANDOM_LEN"),
              "ZKL_SLOT_WORDS": constant(
                  text, "ZKL_SLOTS_MAX") // bits}
    fields = text.split("typedef struct {")[1].split("u_char")[0]
    at = 0
    for kind, array in re.findall(r"(?m)^    (\w+) +\w+(?:\[(\w+)\])?;",
                                  fields):
        size = sizes[kind]
        at = -(-at // size) * size + size * (counts[array] if array else 1)
    size = constant(text, "ZKL_CELL")
    return size, size - at


def test_limits_of_calls():
    text = " ".join(read("docs", "calls.md").split())
    args = read("src", "base", "args.h")
    assert "1 to %d of them" % constant(args, "ZKL_ARGS_NAMES_MAX") in text
    assert "%d bytes at most in all" % constant(
        args, "ZKL_NAMES_BYTES") in text
    assert "| %d | how many there are on a page, 1 to %d |" % (
        constant(source("http/list.c"), "NGX_HTTP_ZK_LOCK_LIST_LIMIT"),
        constant(args, "ZKL_LIMIT_MAX")) in text
    assert "at most %d names are looked at" % constant(
        source("core/names.h"), "ZKL_NAMES_MAX") in text
    names = {what: constant(source("core/names.h"), "ZKL_NAMES_" + what)
             for what in ("SEARCH_MAX", "READ_MAX", "DESCRIBED_MAX",
                          "TURNS", "SEARCH", "WAITING", "LISTS")}
    assert "up to {:,} names".format(names["SEARCH_MAX"]) in text
    assert "the first {:,} names".format(names["SEARCH_MAX"]) in text
    assert "some {:,} claims were read".format(names["READ_MAX"]) in text
    assert "%d described holders" % names["DESCRIBED_MAX"] in text
    assert "makes %d lists at" % names["TURNS"] in text
    assert "counts as %d of these" % names["SEARCH"] in text
    assert "%d further lists wait" % names["WAITING"] in text
    assert "the first %d holders at most" % constant(
        source("core/call.h"), "ZKL_LIST_MAX") in text
    assert "each lock, %d at a time" % names["LISTS"] in " ".join(
        read("docs", "design.md").split())
    assert "1 to %d printable" % constant(
        source("http/repeat.c"), "NGX_HTTP_ZK_LOCK_KEY_MAX") in text
    assert "sign of life every %d s" % (constant(
        source("http/stream.c"),
        "NGX_HTTP_ZK_LOCK_STREAM_ALIVE") / 1000) in text
    assert "one event in %d ms" % constant(
        source("http/stream.c"), "NGX_HTTP_ZK_LOCK_STREAM_REST") in text
    assert "At most %d claims are described, or all who hold the lock, up to " \
        "%d;" % tuple(constant(source("core/call.h"),
                               "ZKL_%s_MAX" % what)
                      for what in ("LIST", "MEMBERS")) in text
    assert constant(source("shm/record.h"), "ZKL_KEY") * 8 == 64
    assert "64 bits of a hash" in " ".join(read("docs", "interop.md").split())


def test_events():
    """The events of streams, and the reasons for the end of a stream."""
    stream = source("http/stream.c")
    text = section("## As long as a connection", "docs/calls.md")
    events, reasons = text.split("The reasons of `lost`:")

    used = set(re.findall(r'stream_open\(stream,\s*"(\w+)"', stream))
    assert used and set(words(events)) == used

    used = (set(re.findall(r'stream_lost\(stream,\s*"(\w+)"', stream))
            | {reason for _, reason in results() if reason}
            | set(re.findall(r'EVENT_LOST,\s*"(\w+)"', sources())))
    assert used and set(words(reasons)) == used


def operations():
    """operationId -> the operation, with the references resolved."""
    return {operation["operationId"]: openapi.resolved(operation)
            for path in openapi.description()["paths"].values()
            for method, operation in path.items() if method != "parameters"}


def schemas():
    return openapi.description()["components"]["schemas"]


def arguments(operation):
    """The arguments of the query, and of the body."""
    query = {one["name"] for one in operation.get("parameters", [])
             if one["in"] == "query"}
    content = operation.get("requestBody", {}).get("content", {})
    bodies = [schema for one in content.values()
              for schema in one["schema"].get("anyOf", [one["schema"]])]
    return query, {name for schema in bodies
                   if schema.get("additionalProperties") is False
                   for name in schema["properties"]}


def test_description_of_arguments():
    """Each field that the source reads is described, and is in a page."""
    table = re.search(r"zkl_fields\[\] = \{(.*?)\n\};",
                      source("base/args.c"), re.S).group(1)
    fields = set(re.findall(r'\{ "(\w+)"', table))
    found = {name: arguments(operation)
             for name, operation in operations().items()}
    assert found.pop("drain") == ({"drain"}, set())
    assert set().union(*(query | body
                         for query, body in found.values())) == fields

    pages = read("docs", "api.md") + read("docs", "calls.md")
    for name in fields:
        assert re.search(r'[`?&"]%s[`="]' % name, pages), name

    told = words(section("## What an acquire takes", "docs/api.md"))
    assert found["acquire"] == (set(told), set(told))
    told = words(section("## All locks", "docs/calls.md"))
    assert found["listLocks"] == (set(told), set())


def test_description_of_problems():
    """The types are listed, and each type has a schema with the status."""
    types = {("/problems/" + name, status or 500)
             for status, name in problems()}
    listed = schemas()["ProblemType"]["oneOf"]
    assert {(one["const"], int(one["description"].split(":")[0]))
            for one in listed} == types
    assert len(listed) == len(types)
    assert {(schema["properties"]["type"]["const"],
             schema["properties"]["status"]["const"])
            for name, schema in schemas().items()
            if name.endswith("Problem") and name != "GuardProblem"} == types


def test_description_of_statuses():
    used = {int(status) for operation in operations().values()
            for status in operation["responses"]}
    told = {int(item) for item in re.findall(
        r"(?m)^\* \*\*(\d{3})\*\*: ", section("## Statuses", "docs/api.md"))}
    assert used == told


def test_description_of_events():
    events, reasons = section("## As long as a connection",
                              "docs/calls.md").split("The reasons of `lost`:")
    found = {one["properties"]["event"]["const"]
             for name in ("LockEvent", "ClaimEvent")
             for one in openapi.resolved(schemas()[name])["oneOf"]}
    assert found == set(words(events)) | {"alive"}
    assert (set(schemas()["LostEvent"]["properties"]["reason"]["enum"])
            == set(words(reasons)))


def test_description_of_limits():
    name, args = source("base/name.h"), source("base/args.h")
    found = schemas()
    assert found["Name"]["maxLength"] == constant(
        source("base/claim_data.h"), "ZKL_FULL_MAX")
    assert found["Permits"]["maximum"] == constant(name, "ZKL_PERMITS_MAX")
    assert found["Names"]["maxItems"] == constant(args, "ZKL_ARGS_NAMES_MAX")
    assert found["Owner"]["maxLength"] == constant(source("base/json.h"),
                                                   "ZKL_OWNER_MAX")
    limit, = (one["schema"] for one in operations()["listLocks"]["parameters"]
              if one["name"] == "limit")
    assert limit["maximum"] == constant(args, "ZKL_LIMIT_MAX")
    assert limit["default"] == constant(source("http/list.c"),
                                        "NGX_HTTP_ZK_LOCK_LIST_LIMIT")


def test_description_has_no_idle_part():
    """All components are used, but for a response that goes anywhere."""
    used = set(re.findall(r'"\$ref": "#/components/(\w+/\w+)"',
                          json.dumps(openapi.description())))
    there = {"%s/%s" % (kind, name)
             for kind, parts in openapi.description()["components"].items()
             for name in parts}
    assert there - used == {"responses/GuardRefusal"}


def test_labels():
    table = re.search(r"zkl_claim_data_fields\[\] = \{(.*?)\n\};",
                      read("src", "base", "claim_data.c"), re.S).group(1)
    text = section("## The data of a claim", "docs/interop.md")
    assert words(text) == re.findall(r'\{ "(\w+)"', table)


def test_examples():
    there = sorted(os.listdir(os.path.join(TOP, "conf-examples")))
    told = re.findall(r"(?m)^\| `([\w.-]+)` \|",
                      section("## Whole configurations", "docs/recipes.md"))
    assert sorted(told) == there


def test_every_page_is_named():
    """The README has a link to each page of docs/."""
    links = re.findall(r"\]\(([^)#]+)", read("README.md"))
    for page in PAGES:
        assert not page.startswith("docs/") or page in links, page


def test_links():
    """Every link within these pages leads to a page or heading, and every link
    by a name to a definition, which stands alone on its line.
    """
    def anchor(title):
        title = re.sub(r"[^\w\- ]", "", title.lower())
        return title.replace(" ", "-")

    anchors = {page: [anchor(title) for title in re.findall(
        r"(?m)^#+ (.*)$", read(page))] for page in PAGES}
    for page in PAGES:
        for link in re.findall(r"\]\(([^):]+)\)", read(page)):
            path, _, part = link.partition("#")
            path = os.path.normpath(os.path.join(
                os.path.dirname(page), path)) if path else page
            assert os.path.exists(os.path.join(TOP, path)), (page, link)
            assert not part or part in anchors[path], (page, link)
        names = set(re.findall(r"\]\[(\w+(?:-\w+)*)\]", read(page)))
        defined = re.findall(r"^\[([\w-]+)\]: \S+$", read(page), re.M)
        assert names == set(defined), page


def test_width():
    """Tables may be wider."""
    for page in PAGES + ["CHANGES"]:
        for line in read(page).splitlines():
            assert len(line) <= (120 if line.startswith("|") else 80), (
                page, line)


def test_readme_is_short():
    assert len(read("README.md").splitlines()) <= 300


@pytest.mark.parametrize("path", ["python/zk_lock.py", "node/zk-lock.mjs",
                                  "go/zklock.go", "java/ZkLock.java"])
def test_clients_are_short(path):
    """A user reads a client whole before the client is copied."""
    assert len(read("clients/" + path).splitlines()) < 300


def test_promises():
    """docs/promises.md is what scripts/list-promises makes of the tests."""
    made = subprocess.run([os.path.join(TOP, "scripts", "list-promises")],
                          cwd=TOP, check=True, capture_output=True, text=True)
    assert made.stdout == read("docs", "promises.md")
