"""README.md against the source: what it describes is what there is.

Directives with their contexts, variables, statuses, metrics and the words of
$zk_lock_outcome, each compared both ways.  And the tests that it names are
there.
"""

import os
import re

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
NGINX = "/usr/share/nginx/src/src/http/ngx_http_request.h"
MODULE = "ngx_http_zk_lock_"

FLAGS = [("NGX_HTTP_MAIN_CONF", "http"), ("NGX_HTTP_SRV_CONF", "server"),
         ("NGX_HTTP_LOC_CONF", "location")]

# no answers: where nginx's special ones begin, and a client that has left
NO_STATUS = {"NGX_HTTP_SPECIAL_RESPONSE", "NGX_HTTP_CLIENT_CLOSED_REQUEST"}


def read(*names):
    with open(os.path.join(TOP, *names), encoding="utf-8") as file:
        return file.read()


def source(name):
    return read("src", MODULE + name)


def section(title):
    """The text below a heading, to the next one of any level."""
    text = read("README.md").split("\n%s\n" % title, 1)[1]
    return re.split(r"(?m)^#+ ", text, maxsplit=1)[0]


def test_directives():
    table = re.findall(r'\{ ngx_string\("(zk_lock\w*)"\),\s*([A-Z0-9_|]+),',
                       source("module.c"))
    assert table
    headings = re.findall(r"(?m)^### (zk_lock\w*)$", read("README.md"))
    assert headings == [name for name, _ in table]

    for name, flags in table:
        text = section("### " + name)
        contexts = [word for flag, word in FLAGS if flag in flags.split("|")]
        assert re.search(r"(?m)^    Syntax: +%s\b.*;$" % name, text), name
        assert re.search(r"(?m)^    Default: +(none|%s .*;)$" % name,
                         text), name
        assert re.search(r"(?m)^    Context: +%s$" % ", ".join(contexts),
                         text), name


def test_variables():
    table = re.findall(r'\{ ngx_string\("(zk_lock\w*)"\)',
                       source("variables.c"))
    assert table
    headings = re.findall(r"(?m)^### \$(zk_lock\w*)$", read("README.md"))
    assert headings == table


def test_changes():
    """The first release names all of them."""
    text = read("CHANGES")
    for file in "module.c", "variables.c":
        for name in re.findall(r'\{ ngx_string\("(zk_lock\w*)"\)',
                               source(file)):
            assert re.search(r"\b%s\b" % name, text), name


def test_statuses():
    with open(NGINX, encoding="utf-8") as file:
        text = file.read() + source("api.h")
    values = {name: int(value) for name, value in re.findall(
        r"(?m)^#define (NGX_HTTP_\w+)\s+([1-5]\d\d)$", text)
        if name not in NO_STATUS}

    used = {values[name]
            for name in re.findall(r"\bNGX_HTTP_[A-Z_]+\b",
                                   source("api.c") + source("answer.c"))
            if name in values}
    assert 201 in used and 503 in used

    told = {int(row) for row in re.findall(r"(?m)^\| (\d{3}) \|",
                                           section("### Statuses"))}
    assert told == used


def test_outcomes():
    used = set(re.findall(r'ngx_str_set\(&ctx->outcome, "(\w+)"\)',
                          source("api.c") + source("answer.c")))
    assert used
    table = re.findall(r"(?m)^\| (`.*?) \|", section("### $zk_lock_outcome"))
    told = re.findall(r"`(\w+)`", " ".join(table))
    assert sorted(told) == sorted(used)


def test_metrics():
    used = re.findall(r'zk_lock_\w+\{state=\\"\w+\\"\}',
                      source("metrics.c"))
    assert used
    told = re.findall(r"(?m)^\| `(zk_lock_\w+\{.*?\})` \|",
                      section("### zk_lock_metrics"))
    assert told == [line.replace("\\", "") for line in used]


def test_tests():
    """Whatever may break has a test, and what is named as one is one."""
    text = section("## What breaks, and who sees what")
    rows = [row.strip("|").split("|")
            for row in re.findall(r"(?m)^\|.*\|$", text)]
    assert rows[0][-1].strip() == "test" and len(rows) > 2
    for row in rows[2:]:
        names = row[-1].strip().split(", ")
        assert len(row) == len(rows[0]), row
        for name in names:
            assert re.fullmatch(r"`test_\w+\.py::test_\w+`", name), row

    for file, name in re.findall(r"`(\w+\.py)::(\w+)`", read("README.md")):
        assert os.path.exists(os.path.join(TOP, "t", file)), file
        assert re.search(r"(?m)^def %s\(" % name, read("t", file)), (
            "no %s in %s" % (name, file))


def test_limits():
    """Numbers of the README that are constants of the source."""
    text = read("README.md")
    name = read("src", "zk_lock_name.h")
    json = read("src", "zk_lock_json.h")

    def constant(file, what):
        return int(re.search(r"(?m)^#define %s\s+(\d+)" % what, file).group(1))

    assert "1 to %d bytes" % constant(name, "ZK_LOCK_NAME_MAX") in text
    assert "at most %d bytes" % constant(name, "ZK_LOCK_PATH_MAX") in text
    assert "up to %d bytes" % constant(json, "ZK_LOCK_OWNER_MAX") in text
    assert "up to %d levels" % constant(json, "ZK_LOCK_DATA_DEPTH") in text
    assert constant(json, "ZK_LOCK_DATA_MAX") == 1024 and "1 KiB" in text
    assert constant(source("api.h"), "NGX_HTTP_ZK_LOCK_BODY_MAX") == 8192
    assert "%s bytes of paths" % format(constant(
        source("session.c"), "NGX_HTTP_ZK_LOCK_PATH_BYTES"), ",") in text
    assert "At most %d claims" % constant(
        source("ask.h"), "NGX_HTTP_ZK_LOCK_LIST_MAX") in text
    assert "a cell of %d bytes" % constant(
        source("map.h"), "NGX_HTTP_ZK_LOCK_CELL") in text

    fixed, each = re.search(r"n = (\d+) \+ (\d+) \* \(ngx_ncpu",
                            source("map.c")).groups()
    assert "is %s and %s for each processor, at most %d." % (
        fixed, each, constant(source("map.h"),
                              "NGX_HTTP_ZK_LOCK_SLOTS_MAX")) in text
