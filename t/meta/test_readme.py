"""README.md and docs/ against the source: the pages describe what there is.

Directives with contexts, variables, statuses, metrics, the words of
$zk_lock_outcome, events and labels, each compared both ways.  The tests, the
examples and the pages that are named there have to exist.
"""

import glob
import os
import re

TOP = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))
NGINX = "/usr/share/nginx/src/src/http/ngx_http_request.h"

FLAGS = [("NGX_HTTP_MAIN_CONF", "http"), ("NGX_HTTP_SRV_CONF", "server"),
         ("NGX_HTTP_LOC_CONF", "location")]

# no answers: where nginx's special statuses begin, a client that has left, and
# a client that does not read the stream, and is cut off
NO_STATUS = {"NGX_HTTP_SPECIAL_RESPONSE", "NGX_HTTP_CLIENT_CLOSED_REQUEST",
             "NGX_HTTP_REQUEST_TIME_OUT"}

# the files that answer
ANSWERS = ["acquire", "admin", "answer", "api", "args", "calls", "page",
           "repeat", "request", "result", "several", "stream", "terraform",
           "watch"]
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
        assert re.search(r"(?m)^    Syntax: +%s\b.*;$" % name, text), name
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


def test_changes():
    """The first release names all directives."""
    text = read("CHANGES")
    for file in "module.c", "http/variables.c":
        for name in re.findall(r'\{ ngx_string\("(zk_lock\w*)"\)',
                               source(file)):
            assert re.search(r"\b%s\b" % name, text), name


def test_statuses():
    with open(NGINX, encoding="utf-8") as file:
        text = file.read() + source("http/answer.h")
    values = {name: int(value) for name, value in re.findall(
        r"(?m)^#define (NGX_HTTP_\w+)\s+([1-5]\d\d)$", text)
        if name not in NO_STATUS}

    used = {values[name]
            for name in re.findall(r"\bNGX_HTTP_[A-Z_]+\b", answers())
            if name in values}
    assert 201 in used and 503 in used

    told = {int(item) for item in re.findall(
        r"(?m)^\* \*\*(\d{3})\*\*: ", section("## Statuses", "docs/api.md"))}
    assert told == used


def test_outcomes():
    used = set(re.findall(
        r'ngx_str_set\(&(?:\w+->)*outcome,\s*"(\w+)"\)', answers()))
    used |= {word for word, _ in results()}
    assert used
    told = words(section("### $zk_lock_outcome", "docs/directives.md"))
    assert sorted(told) == sorted(used)


def test_metrics():
    used = re.findall(r'zk_lock_\w+\{state=\\"\w+\\"\}',
                      source("http/metrics.c"))
    assert used
    told = re.findall(r"(?m)^\| `(zk_lock_\w+\{.*?\})` \|",
                      section("### zk_lock_metrics", "docs/directives.md"))
    assert told == [line.replace("\\", "") for line in used]


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
        source("zk/session.c"), "ZKL_PATH_BYTES"), ",") in text
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
    sizes = {"ngx_atomic_t": 8, "int64_t": 8, "uint32_t": 4, "uint16_t": 2,
             "uint8_t": 1, "u_char": 1}
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
        constant(source("http/page.c"), "NGX_HTTP_ZK_LOCK_PAGE_LIMIT"),
        constant(args, "ZKL_LIMIT_MAX")) in text
    assert "at most %d names are looked at" % constant(
        source("core/names.h"), "ZKL_NAMES_MAX") in text
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

    used = set(re.findall(r'stream_send\(stream,\s*"(\w+)"', stream))
    assert used and set(words(events)) == used

    used = (set(re.findall(r'stream_lost\(stream,\s*"(\w+)"', stream))
            | {reason for _, reason in results() if reason}
            | set(re.findall(r'EVENT_LOST,\s*"(\w+)"', sources())))
    assert used and set(words(reasons)) == used


def test_labels():
    table = re.search(r"zkl_claim_data_names\[\] = \{(.*?)\};",
                      read("src", "base", "claim_data.c"), re.S).group(1)
    text = section("## The data of a claim", "docs/interop.md")
    assert words(text) == re.findall(r'"(\w+)"', table)


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
    """Every link within these pages leads to a page or heading."""
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


def test_width():
    """Tables may be wider."""
    for page in PAGES + ["CHANGES"]:
        for line in read(page).splitlines():
            assert len(line) <= (120 if line.startswith("|") else 80), (
                page, line)


def test_readme_is_short():
    assert len(read("README.md").splitlines()) <= 300
