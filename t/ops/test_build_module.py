"""scripts/build-module: the module for an nginx that Debian did not package.

A stand-in for nginx tells a version and options, and a stand-in for a source
has a configure that compiles nothing, so that each refusal takes a moment.
One module is built for real, for Debian's nginx.
"""

import glob
import os
import re
import shlex
import subprocess

import pytest

from lib.gateway import TREE

SCRIPT = os.path.join(TREE, "scripts", "build-module")
DEBIAN = "/usr/share/nginx/src"
BUILT = os.path.join(TREE, "build", "modules")
MODULE = "ngx_http_zk_lock_module.so"

NGINX = """\
#!/bin/sh
# {signature}
case $1 in
-V) echo 'nginx version: {version}' >&2
    echo {arguments} >&2 ;;
*)  {loads} ;;
esac
"""

# The Makefile knows what the script asks: modules, and a signature.
CONFIGURE = """\
#!/bin/sh
for option; do
    echo "$option"
    case $option in --builddir=*) objects=${option#*=} ;; esac
done
touch Makefile
cat > $objects/Makefile << END
CC = cc -DNGX_MODULE_SIGNATURE='"8,4,8,%s"'
ALL_INCS = -Isrc/core
modules: ; touch $objects/ngx_http_zk_lock_module.so
END
"""
ZEROS = "0" * 34

debian = pytest.mark.skipif(not os.path.exists(DEBIAN + "/conf_flags"),
                            reason="nginx-dev is not installed")
pytestmark = pytest.mark.plain("nothing of it runs in nginx")


@pytest.fixture
def nginx(tmp_path):
    """A function that makes the stand-in for nginx."""
    def make(version="nginx/9.99.1", arguments="--with-compat", loads="exit 0",
             signature=""):
        path = tmp_path / "nginx"
        path.write_text(NGINX.format(
            version=version, loads=loads, signature=signature,
            arguments=shlex.quote("configure arguments: " + arguments)))
        path.chmod(0o755)
        return str(path)

    return make


@pytest.fixture
def source(tmp_path):
    """A function that makes the stand-in for a source."""
    def make(version="9.99.1", number=9099001, folder="source"):
        core = tmp_path / folder / "src" / "core"
        core.mkdir(parents=True)
        (core / "nginx.h").write_text(
            '#define nginx_version %d\n#define NGINX_VERSION "%s"\n'
            '#define NGINX_VER "nginx/" NGINX_VERSION\n' % (number, version))
        (core / "ngx_config.h").touch()
        (core / "ngx_core.h").touch()
        configure = tmp_path / folder / "auto" / "configure"
        configure.parent.mkdir()
        configure.write_text(CONFIGURE % ZEROS)
        configure.chmod(0o755)
        return str(tmp_path / "source")

    return make


def run(*arguments):
    return subprocess.run([SCRIPT, *arguments], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=600, text=True)


def build(nginx, source, *more):
    return run("--nginx", nginx, "--nginx-source", source, *more)


def refusal(result):
    """The sentence in which the script says why not."""
    assert result.returncode == 1, result.stdout
    return " ".join(result.stdout.split())


def options(version):
    """What the configure of the source was given."""
    path = os.path.join(BUILT, "nginx-" + version, "configure.log")
    with open(path) as file:
        return file.read().splitlines()


def debians():
    """The version of Debian's nginx, and nginx_version."""
    with open(DEBIAN + "/src/core/nginx.h") as file:
        text = file.read()
    return (re.search(r'NGINX_VERSION\s+"(.*)"', text).group(1),
            int(re.search(r"nginx_version\s+(\d+)", text).group(1)))


def files(folder):
    return {path: os.stat(path).st_mtime_ns for path in
            glob.glob(os.path.join(folder, "**"), recursive=True)}


def test_what_is_told(nginx, source):
    """The file, its place and two lines; the source stays as it was."""
    folder = source()
    before = files(folder)
    result = build(nginx(arguments="--prefix=/opt/x --modules-path=/opt/m"),
                   folder)
    assert result.returncode == 0, result.stdout
    path = os.path.join(BUILT, "nginx-9.99.1", MODULE)
    assert path in result.stdout.splitlines() and os.path.exists(path)
    assert "    load_module /opt/m/%s;\n" % MODULE in result.stdout
    assert "    zk_lock_servers 127.0.0.1:2181;\n" in result.stdout
    assert files(folder) == before


def test_options(nginx, source):
    """Those of nginx, in which blanks stay, but for modules and libraries."""
    result = build(nginx(arguments=(
        "--prefix=/opt/x --with-cc-opt='-O1 -DA=\"b c\"' --with-threads "
        "--with-ld-opt='-pie -Wl,-z,now' --with-mail=dynamic "
        "--add-module=../lua --with-openssl=../openssl "
        "--with-http_xslt_module")), source(), "--", "--with-debug")
    assert result.returncode == 0, result.stdout
    assert ("left out, as the module needs none of it: --add-module=../lua "
            "--with-openssl=../openssl\n" in result.stdout)
    assert "was built without --with-compat" in result.stdout
    given = options("9.99.1")
    assert given[:3] == ["--prefix=/opt/x", "--with-threads", "--with-debug"]
    assert "-O1 -DA=\"b c\" -fPIC" in given[3]
    assert given[4].split() == ["--with-ld-opt=-Wl,-z,now"]
    assert given[-1] == "--add-dynamic-module=" + TREE
    assert len(given) == 7


def test_tarball_of_openresty(nginx, source):
    """The source is in a folder of the tarball."""
    folder = source(folder="source/bundle/nginx-9.99.1")
    assert build(nginx(), folder).returncode == 0


@pytest.mark.parametrize("version, address", [
    ("nginx/9.99.2", "https://nginx.org/download/nginx-9.99.2.tar.gz"),
    ("freenginx/9.99.1",
     "https://freenginx.org/download/freenginx-9.99.1.tar.gz"),
    ("openresty/9.99.1.1",
     "https://openresty.org/download/openresty-9.99.1.1.tar.gz"),
    ("Angie/9.99.1",
     "https://download.angie.software/files/angie-9.99.1.tar.gz"),
])
def test_other_source(nginx, source, version, address):
    """The source of another version or of a fork is refused, as is none."""
    text = refusal(build(nginx(version=version), source()))
    assert "is of nginx/9.99.1, but" in text
    assert "is %s." % version in text
    assert "get %s," % address in text
    text = refusal(run("--nginx", nginx(version=version)))
    assert "is %s, whose source is not here" % version in text
    assert address in text
    assert "build/modules/%s/%s" % (version.lower().replace("/", "-"),
                                    MODULE) in text


def test_debians_patches(nginx, source):
    """A patch changed a structure: no version and no signature tells."""
    folder = source()
    assert build(nginx(), folder).returncode == 0
    os.mkdir(os.path.join(folder, "debian"))
    text = refusal(build(nginx(), folder))
    assert "has Debian's patches" in text
    assert "is not Debian's: get https://nginx.org/" in text


@debian
def test_debians_source_for_another(nginx):
    """The source of nginx-dev is not taken, though the versions agree."""
    text = refusal(run("--nginx", nginx("nginx/" + debians()[0])))
    assert "whose source is not here" in text


@debian
def test_source_without_debians_patches(source):
    text = refusal(build("/usr/sbin/nginx", source(*debians())))
    assert "has not these patches" in text and "nginx-dev" in text


def test_too_old(nginx, source):
    text = refusal(build(nginx(version="nginx/1.20.2"),
                         source("1.20.2", 1020002)))
    assert "nginx 1.22.0 is the oldest" in text


def test_no_source_and_no_nginx(nginx, source, tmp_path):
    text = refusal(build(nginx(), str(tmp_path)))
    assert "has no source of nginx" in text
    text = refusal(build(str(tmp_path / "none"), source()))
    assert "is no program that can be run" in text
    text = refusal(build("/bin/false", source(folder="source/other")))
    assert "/bin/false -V fails" in text
    assert run("--nginx").returncode == 2
    assert run("--other", "x").returncode == 2


@pytest.mark.parametrize("option", ["-static", "'-Wl,-z,now -static'"])
def test_static_nginx(nginx, source, option):
    text = refusal(build(nginx(arguments="--with-ld-opt=" + option), source()))
    assert "was linked with -static" in text
    assert "--add-module=" + TREE in text


def test_other_signature(nginx, source):
    """nginx was built with threads, and has no --with-compat."""
    theirs = ZEROS[:21] + "1" + ZEROS[22:]
    text = refusal(build(nginx(arguments="", signature="8,4,8," + theirs),
                         source()))
    assert "signatures differ, 8,4,8,%s and 8,4,8,%s; digit 22 (--with" \
           "-threads)." % (theirs, ZEROS) in text
    assert "both with --with-compat" in text


@pytest.mark.parametrize("says, why", [
    ('module "x" is not binary compatible', "built with other options than"),
    ('undefined symbol: ngx_x', "lacks what the module uses"),
    ('"load_module" is not supported on this platform', "--add-module="),
    ('libyajl.so.2: cannot open shared object file', "libyajl2"),
    ('something else', "does not load the module"),
])
def test_nginx_does_not_load_it(nginx, source, says, why):
    text = refusal(build(
        nginx(loads="echo %s >&2; exit 1" % shlex.quote(says)), source()))
    assert says in text and why in text


@debian
def test_debians():
    """Debian's nginx loads the module, and knows the directives then.

    The options save half of the time of the build.
    """
    before = files(DEBIAN)
    result = run("--", "--with-cc-opt=-O0 -g0 -U_FORTIFY_SOURCE")
    assert result.returncode == 0, result.stdout
    assert files(DEBIAN) == before
    path, = [line for line in result.stdout.splitlines()
             if line.startswith(BUILT)]
    configuration = os.path.join(os.path.dirname(path), "test.conf")
    with open(configuration, "w") as file:
        file.write("load_module %s; events {} http { zk_lock_servers; }\n"
                   % path)
    tried = subprocess.run(
        ["/usr/sbin/nginx", "-t", "-e", "stderr", "-c", configuration],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        timeout=30)
    assert ('invalid number of arguments in "zk_lock_servers"'
            in tried.stdout), tried.stdout
