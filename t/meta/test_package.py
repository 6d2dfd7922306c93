"""The Debian packages, as far as files can tell: the man page has what
docs/directives.md has, versions are the same everywhere, nginx takes the site,
and the times of the drop-in for nginx.service grow.

scripts/test-package installs the packages in a clean root.
"""

import os
import re
import shutil
import subprocess

import pytest

from lib.gateway import MODULE, NGINX, TREE

PACKAGE = "libnginx-mod-http-zk-lock"


def read(*names):
    with open(os.path.join(TREE, *names), encoding="utf-8") as file:
        return file.read()


def run(*command, **more):
    return subprocess.run(command, capture_output=True, encoding="utf-8",
                          check=True, timeout=60, **more)


@pytest.fixture(name="page")
def fixture_page(tmp_path):
    """The path of the man page."""
    path = tmp_path / "ngx_http_zk_lock_module.7"
    path.write_text(run(os.path.join(TREE, "scripts", "man-page")).stdout)
    return str(path)


def syntaxes(text, mark):
    """Of each directive or variable the lines from the syntax to the context,
    and the text behind these lines."""
    for part in re.split(r"(?m)^%s (?=\$?zk_lock)" % mark, text)[1:]:
        name, body = re.split(r"(?m)^(?:##|\.SH) ", part)[0].split("\n", 1)
        block = re.search(r"(?s) *Syntax: .*?Context: [^\n]*\n", body)
        yield (name, [line.strip() for line in block.group(0).splitlines()]
               if block else [], body[block.end() if block else 0:])


def test_man_page_is_whole(page):
    """All directives and variables, with their syntax, default and context."""
    with open(page, encoding="utf-8") as file:
        text = file.read().replace("\\-", "-")
    docs = read("docs", "directives.md")
    found = list(syntaxes(text, r"\.SS"))
    assert len(found) > 30
    assert [item[:2] for item in found] \
        == [item[:2] for item in syntaxes(docs, "###")]
    for name, _, behind in found:
        assert re.search(r"(?m)^[A-Z][^\n]*\.$", behind), name


def test_man_page_is_readable(page):
    """man has no complaint, and no mark of Markdown is left."""
    if not shutil.which("man"):
        pytest.skip("there is no man")
    shown = run("man", "--warnings", "-Tutf8", "-l", page,
                env=dict(os.environ, MANWIDTH="80", LC_ALL="C.UTF-8"))
    assert shown.stderr == ""
    assert not re.search(r"`|\]\(|@[A-Z]+@", shown.stdout)


def test_versions():
    released = re.match(r"Changes with (\S+)\n", read("CHANGES")).group(1)
    assert re.match(r"%s \(%s\) " % (PACKAGE, re.escape(released)),
                    read("debian", "changelog"))


def test_packages_are_told():
    told = re.findall(r"(?m)^\| `([a-z-]+)` \|", read("docs", "install.md"))
    assert told == re.findall(r"(?m)^Package: (.*)$", read("debian", "control"))


def test_site(tmp_path):
    """nginx takes the site as Debian's nginx.conf would include it."""
    (tmp_path / "logs").mkdir()
    (tmp_path / "sites").mkdir()
    (tmp_path / "sites" / "zk-lock").write_text(
        read("debian", "sites-available", "zk-lock").replace(
            "/var/log/nginx/", "logs/"))
    conf = tmp_path / "nginx.conf"
    conf.write_text("load_module %s;\npid nginx.pid;\nerror_log stderr;\n"
                    "events {}\nhttp {\n    access_log off;\n"
                    "    include sites/*;\n}\n" % MODULE)
    # with -t nginx does not free all memory of the configuration
    done = run(NGINX, "-t", "-p", str(tmp_path), "-c", str(conf),
               "-e", "stderr",
               env=dict(os.environ, LSAN_OPTIONS="detect_leaks=0"))
    assert "[warn]" not in done.stderr
    assert "test is successful" in done.stderr


def test_site_answers_its_own_names():
    """Any other name is one that a stranger has led to this machine."""
    other, own = read("debian", "sites-available",
                      "zk-lock").split("\nserver {")[1:]
    assert "default_server" in other and "return 421;" in other
    assert "zk_lock" not in other and "default_server" not in own
    assert "server_name 127.0.0.1 localhost $hostname;" in own


def test_logs_of_the_site_have_no_path():
    """A path may have a token in it."""
    formats = re.search(r"(?s)log_format zk_lock (.*?);", read(
        "debian", "sites-available", "zk-lock")).group(1)
    assert not {"$request", "$uri", "$request_uri"} & set(
        re.findall(r"\$\w+", formats))


def test_drop_in():
    """Each time ends before the next would cut nginx off, and the location is
    that of the site."""
    text = read("debian", "nginx.service.d", "zk-lock.conf")
    docs = read("docs", "operations.md")
    shutdown = re.search(r"worker_shutdown_timeout (\d+)s;", text)
    wait = re.search(r"(?m)^ExecStop=.*QUIT/(\d+) ", text)
    stop = re.search(r"(?m)^TimeoutStopSec=(\d+)$", text)
    assert int(shutdown.group(1)) < int(wait.group(1)) < int(stop.group(1))

    for sentence in (shutdown.group(0), "after %s seconds" % wait.group(1),
                     "`TimeoutStopSec`, which is %s seconds" % stop.group(1)):
        assert sentence in docs, sentence

    location = re.search(r"http://127\.0\.0\.1:8080(/\S*)\?drain=on", text)
    assert "location = %s {" % location.group(1) in read(
        "debian", "sites-available", "zk-lock")
