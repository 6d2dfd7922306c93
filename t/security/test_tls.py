"""TLS to ZooKeeper, which is there if the C library was built with it.

Debian's was not, and the directives say so.  The compiler checks the code for a
library with TLS, with stubs of the two OpenSSL types that the library's header
needs.  SECURITY.md names a tunnel as the replacement, and a test tries that.
"""

import os
import re
import shlex
import shutil
import subprocess

import pytest

from lib.gateway import MODULE, TREE
from lib.process import free_port, tied, wait_until
from lib.zookeeper import Server

DIRECTIVES = ["zk_lock_ssl_trusted_certificate", "zk_lock_ssl_certificate",
              "zk_lock_ssl_certificate_key"]
NGINX_SRC = os.environ.get("NGINX_SRC", "/usr/share/nginx/src")
CONFIGURED = os.path.join(TREE, "build", "nginx")
PARTS = ("core", "event", "event/modules", "os/unix", "http", "http/modules",
         "http/v2")


def has_tls():
    with open(MODULE, "rb") as f:
        return b"zookeeper_init_ssl" in f.read()


without = pytest.mark.skipif(has_tls(), reason="the library has TLS")
with_tls = pytest.mark.skipif(not has_tls(), reason="the library has no TLS")


def refused(start_gateway, lines):
    gateway = start_gateway(http=lines, start=False)
    gateway.allow(r"\[emerg\]")
    code, says = gateway.test_conf()
    assert code != 0, says
    return says


@without
@pytest.mark.parametrize("directive", DIRECTIVES)
def test_library_without_tls(start_gateway, directive):
    says = refused(start_gateway, directive + " x.pem;")
    assert '"%s" directive needs a ZooKeeper client library' % directive \
        in says


@with_tls
@pytest.mark.parametrize("missing", DIRECTIVES)
def test_all_three_or_none(start_gateway, missing):
    says = refused(start_gateway, "".join(
        directive + " x.pem;\n" for directive in DIRECTIVES
        if directive != missing))
    assert "need each other" in says


@with_tls
@pytest.mark.parametrize("directive", DIRECTIVES)
@pytest.mark.parametrize("path", ['""', "a,b.pem"])
def test_paths(start_gateway, directive, path):
    says = refused(start_gateway, "%s %s;" % (directive, path))
    assert "without a comma" in says


@pytest.mark.parametrize("source", ["zk/client", "conf"])
@pytest.mark.parametrize("tls", [0, 1])
def test_both_ways_compile(tmp_path, source, tls):
    """The code compiles with and without TLS, as the macro of `config` says.
    """
    stub = tmp_path / "openssl"
    stub.mkdir()
    (stub / "ossl_typ.h").write_text("typedef struct ssl_st  SSL;\n"
                                     "typedef struct ssl_ctx_st  SSL_CTX;\n")
    command = shlex.split(os.environ.get("CC", "cc")) + [
        "-E" if source == "zk/client" and not tls else "-fsyntax-only",
        "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter",
        "-DNGX_HTTP_ZK_LOCK_SSL=%d" % tls, "-I", str(tmp_path),
        "-I", CONFIGURED, "-I", os.path.join(TREE, "src")]
    for part in PARTS:
        command += ["-I", os.path.join(NGINX_SRC, "src", part)]
    command.append(os.path.join(TREE, "src", source + ".c"))
    run = subprocess.run(command, stdout=subprocess.PIPE, timeout=60,
                         stderr=subprocess.STDOUT)
    assert run.returncode == 0, run.stdout.decode()[-2000:]
    if source == "zk/client" and not tls:
        assert b"zookeeper_init_ssl" not in run.stdout


# the tunnel of SECURITY.md

NETTY = ["netty-%s.jar" % part for part in
         ("common", "buffer", "transport", "codec", "handler", "resolver")]

CERTIFY = """
set -e
openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=ca \\
    -keyout ca.key -out zookeeper-ca.pem
certify()
{
    openssl req -newkey rsa:2048 -nodes -subj /CN=$1 -keyout $1.rsa \\
        -out $1.csr
    printf "subjectAltName=DNS:$1\\n" > $1.ext
    openssl x509 -req -days 2 -in $1.csr -CA zookeeper-ca.pem -CAkey ca.key \\
        -CAcreateserial -extfile $1.ext -out $1.pem
    openssl pkcs8 -topk8 -nocrypt -in $1.rsa -out $1.key
}
certify gateway
certify localhost
cat localhost.pem localhost.key > server.pem
"""


@pytest.fixture
def secure(tmp_path):
    """A ZooKeeper with a TLS port, and the files of SECURITY.md's names."""
    subprocess.run(["sh", "-c", CERTIFY], cwd=str(tmp_path), check=True,
                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL, timeout=60)
    port = free_port()
    server = Server(
        tmp_path / "secure", jars=NETTY,
        properties=["-Dzookeeper.serverCnxnFactory=org.apache.zookeeper."
                    "server.NettyServerCnxnFactory"],
        config=["secureClientPort=%d" % port,
                "secureClientPortAddress=127.0.0.1",
                "ssl.keyStore.location=%s" % (tmp_path / "server.pem"),
                "ssl.trustStore.location=%s"
                % (tmp_path / "zookeeper-ca.pem")])
    server.secure_port = port
    server.start()
    yield server
    server.stop()


def tunnel_conf(directory, near, far, name):
    """The lines of SECURITY.md, with files and ports of the test's own."""
    with open(os.path.join(TREE, "SECURITY.md")) as f:
        lines = re.search(r"(?m)^    \[zookeeper-1\]\n(    .*\n)+",
                          f.read()).group(0)
    text = re.sub("(?m)^    ", "", lines)
    text = re.sub(r"(accept *= ).*", r"\g<1>127.0.0.1:%d" % near, text)
    text = re.sub(r"(connect *= ).*", r"\g<1>127.0.0.1:%d" % far, text)
    text = re.sub(r"(checkHost *= ).*", r"\g<1>" + name, text)
    return ("foreground = yes\npid =\noutput = %s/stunnel.log\n" % directory
            + text.replace("/etc/stunnel", str(directory)))


@pytest.mark.parametrize("name, works", [("localhost", True),
                                         ("zookeeper.example.com", False)])
def test_tunnel(start_gateway, secure, tmp_path, name, works):
    """The tunnel works, and checks the server's name, as SECURITY.md says."""
    near = free_port()
    conf = tmp_path / "stunnel.conf"
    conf.write_text(tunnel_conf(tmp_path, near, secure.secure_port, name))
    program = shutil.which("stunnel4") or shutil.which("stunnel")
    tunnel = subprocess.Popen(tied([program, str(conf)]),
                              stdin=subprocess.DEVNULL,
                              stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL)
    try:
        log = tmp_path / "stunnel.log"
        wait_until(lambda: log.exists() and "Configuration successful"
                   in log.read_text(), 30, "stunnel runs")
        gateway = start_gateway(servers="127.0.0.1:%d" % near)
        if works:
            gateway.release("x", gateway.hold("x").token)
            assert secure.living_sessions()
        else:
            assert gateway.acquire("x", wait="0").status == 503
            assert not secure.living_sessions()
        gateway.stop()
    finally:
        tunnel.terminate()
        tunnel.wait(10)
