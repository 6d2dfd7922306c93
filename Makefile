# Builds the module for the nginx that is installed, out of tree: all that is
# made lies in build/.  `make help` lists what there is.

NGINX_SRC := /usr/share/nginx/src
PYTHON    ?= /usr/bin/python3
ROOT      := $(CURDIR)
MODULE    := build/ngx_http_zk_lock_module.so
ASAN      := build/asan

# what the integration tests run; the ASan build puts its own here
export NGINX_BIN      ?= $(shell PATH="$$PATH:/usr/sbin" command -v nginx)
export ZK_LOCK_MODULE ?= $(ROOT)/$(MODULE)

comma := ,
space := $(subst ,, )

ifneq ($(words $(ROOT)),1)
$(error The path of this folder has a blank in it, which nginx's build does \
        not bear: $(ROOT))
endif

# one target at a time, but as many compilers as there are processors
.NOTPARALLEL:
.DELETE_ON_ERROR:
MAKEFLAGS += -j$(shell nproc) --no-print-directory

.PHONY: all build man package test-package unit gsim gsim-mutants soak \
        integration integration-asan test check \
        nginxes integration-nginx asan test-asan tsan tsan-unit tsan-build \
        integration-tsan valgrind plain chaos fuzz fuzz-build fuzz-mutants \
        bench lint lint-openapi lint-manifests openapi-seen format-check image \
        test-image install-deps quickstart install clean help FORCE

all: build


# --- the module -------------------------------------------------------------

SOURCES := $(sort $(wildcard src/*.[ch] src/*/*.[ch]))
PAGE    := src/http/page.html scripts/embed-page

COMMAND := build/zk-lock

build: $(MODULE) $(COMMAND)

# The Makefile of nginx's configure knows every object's headers; ours has
# only to know when to ask.  A linked module may still lack a symbol, or not
# fit the nginx that is installed, so it is loaded once.  It takes its place
# by a rename: a running nginx may have the old one mapped.
$(MODULE): build/folders.ok build/nginx/Makefile $(SOURCES) $(PAGE)
	$(MAKE) -f $(ROOT)/build/nginx/Makefile -C $(NGINX_SRC) modules
	scripts/check-folders --objects build/nginx/addon
	cp build/nginx/$(notdir $@) $@.new
	echo 'load_module $(ROOT)/$@.new; events {}' > build/load.conf
	$(NGINX_BIN) -t -q -c $(ROOT)/build/load.conf \
	    -g 'pid $(ROOT)/build/load.pid; error_log stderr;'
	mv $@.new $@

COMMAND_CFLAGS = -std=gnu11 -D_GNU_SOURCE -Wall -Wextra -Werror $(CPPFLAGS) \
    $(or $(CFLAGS),-O2 -g)

$(COMMAND): $(wildcard command/*.[ch])
	@mkdir -p $(@D)
	$(CC) $(COMMAND_CFLAGS) $(LDFLAGS) -o $@ $(filter %.c,$^) -lcurl -lyajl

$(COMMAND)-asan: $(wildcard command/*.[ch])
	@mkdir -p $(@D)
	$(CC) $(COMMAND_CFLAGS) -fsanitize=address,undefined \
	    -fno-sanitize-recover=all -fno-omit-frame-pointer \
	    -o $@ $(filter %.c,$^) -lcurl -lyajl

# Debian's flags for the code, and the options of Debian's nginx for the
# layout of nginx's own structures.
build/nginx/Makefile: config config.make build/inputs
	@test -f $(NGINX_SRC)/conf_flags || \
	    { echo "nginx-dev is missing: run 'make install-deps'." >&2; exit 1; }
	rm -rf $(@D) && mkdir -p $(@D)
	bash -euc '. $(NGINX_SRC)/conf_flags; \
	    flags() { dpkg-buildflags --get "$$1"; }; \
	    cc_opt="$$(flags CFLAGS) -fPIC $$(flags CPPFLAGS)"; \
	    ld_opt="$$(flags LDFLAGS) -fPIC"; \
	    cd $(NGINX_SRC); \
	    ./configure "$${NGX_CONF_FLAGS[@]}" \
	        --with-cc-opt="$$cc_opt" --with-ld-opt="$$ld_opt" \
	        --add-dynamic-module=$(ROOT) --builddir=$(ROOT)/$(@D)' \
	    > build/configure.log 2>&1 \
	    || { grep error: build/configure.log || cat build/configure.log; \
	         exit 1; } >&2

# what configure was run for: another list of files or another nginx, and it
# has to run again
INPUTS = $(SOURCES) $(shell dpkg-query -W -f='$${Version}' nginx-dev 2>&1)

build/inputs: FORCE
	@mkdir -p build
	@test "$$(cat $@ 2>/dev/null)" = "$(INPUTS)" || echo "$(INPUTS)" > $@

build/folders.ok: scripts/check-folders $(SOURCES)
	scripts/check-folders
	@mkdir -p build && touch $@

MAN := build/ngx_http_zk_lock_module.7

man: $(MAN)

$(MAN): scripts/man-page man/ngx_http_zk_lock_module.7.in docs/directives.md \
        CHANGES
	@mkdir -p $(@D)
	scripts/man-page > $@


# --- tests ------------------------------------------------------------------

# SANITIZE=1 builds the programs of unit and gsim with ASan and UBSan
TEST_BUILD  := build/t$(if $(SANITIZE),-asan)
TEST_CFLAGS := -std=gnu11 -g -O1 -Wall -Wextra -Werror -Isrc \
    $(if $(SANITIZE),-fsanitize=address$(comma)undefined \
                     -fno-sanitize-recover=all \
                     -fno-omit-frame-pointer) \
    $(CPPFLAGS) $(CFLAGS)

PLAIN := $(patsubst src/%.c,$(TEST_BUILD)/%.o,$(wildcard src/base/*.c))
UNIT  := $(patsubst t/unit/%.c,$(TEST_BUILD)/%,$(wildcard t/unit/test_*.c))

# A library, so that a program takes only those files that it needs (or none
# of a file that it includes for its statics).
$(TEST_BUILD)/libzk_lock.a: $(PLAIN)
	rm -f $@ && ar rcs $@ $^

$(TEST_BUILD)/base/%.o: src/base/%.c
	@mkdir -p $(@D)
	$(CC) $(TEST_CFLAGS) -MMD -MP -c -o $@ $<

$(TEST_BUILD)/test_%: t/unit/test_%.c $(TEST_BUILD)/libzk_lock.a
	$(CC) $(TEST_CFLAGS) $(LDFLAGS) -MMD -MP -MF $@.d -o $@ $< \
	    $(TEST_BUILD)/libzk_lock.a -lyajl -lpthread -lcmocka

# Those of parts that call nginx's core take in the file that they test.
UNIT_NGINX := $(addprefix $(TEST_BUILD)/test_,counters turns)

$(TEST_BUILD)/nginx_%.o: t/lib/nginx_%.c | build/nginx/Makefile
	@mkdir -p $(@D)
	$(CC) $(TEST_CFLAGS) $(LINT_INCLUDES) -MMD -MP -c -o $@ $<

$(UNIT_NGINX): $(TEST_BUILD)/test_%: t/unit/test_%.c \
               $(TEST_BUILD)/nginx_core.o $(TEST_BUILD)/nginx_tree.o
	$(CC) $(TEST_CFLAGS) $(LINT_INCLUDES) $(LDFLAGS) -MMD -MP -MF $@.d \
	    -o $@ $< $(filter %.o,$^) -lcmocka

-include $(wildcard $(TEST_BUILD)/*.d $(TEST_BUILD)/base/*.d)

unit: $(UNIT)
	sh t/meta/test_folders.sh
	sh t/meta/test_config.sh
	@test -n "$(UNIT)" || { echo "no t/unit/test_*.c" >&2; exit 1; }
	@failed=; for program in $(UNIT); do \
	    echo "== $$program"; ./$$program || failed="$$failed $$program"; \
	done; test -z "$$failed" || { echo "failed:$$failed" >&2; exit 1; }

# what makes a gateway's memory run short (t/lib/shortage.py)
SHORTAGE := build/t/shortage.so

$(SHORTAGE): t/lib/shortage.c
	@mkdir -p $(@D)
	$(CC) -std=gnu11 -g -O2 -Wall -Wextra -Werror -fPIC -shared \
	    -fno-builtin -o $@ $< -ldl

# The classes that each server of the tests maps; without them a server reads
# them from the jars.
ARCHIVE := build/zookeeper.jsa

$(ARCHIVE):
	@mkdir -p $(@D)
	-cd t && PYTHONPYCACHEPREFIX=$(ROOT)/build/pycache \
	    $(PYTHON) -m lib.zookeeper

# --- the gateways, simulated ------------------------------------------------

# All folders below http/ as they are, for one program; t/gsim answers what they
# ask of the system; gsim_library.c, gsim_session.c and gsim_follow.c take in a
# file each.
GSIM_BUILD  := $(TEST_BUILD)/gsim
GSIM        := $(GSIM_BUILD)/gateway_sim
GSIM_SRC    := $(filter-out src/zk/client.c src/zk/session.c \
                            src/core/follow.c, \
                 $(wildcard src/base/*.c src/zk/*.c src/shm/*.c src/core/*.c))
GSIM_OWN    := $(wildcard t/gsim/*.c) t/lib/nginx_core.c t/lib/nginx_tree.c
GSIM_CALLS  := malloc calloc realloc free clock_gettime kill usleep random \
               getrandom eventfd open64 read write close stat64 \
               pthread_sigmask ngx_alloc ngx_calloc zkl_session_open \
               zkl_session_close zkl_session_leave zkl_session_send \
               zkl_turns_answered
GSIM_WRAP   := $(GSIM_CALLS:%=-Wl,--wrap=%)
GSIM_CFLAGS := -std=gnu11 -g -O2 -D_GNU_SOURCE -Wall -Wextra -Werror \
    -Wno-unused-parameter -Wno-sign-compare \
    $(if $(SANITIZE),-fsanitize=address$(comma)undefined \
                     -fno-sanitize-recover=all \
                     -fno-sanitize=alignment$(comma)nonnull-attribute \
                     -fno-omit-frame-pointer)

# those that write to zones are told of each store: see gsim_store.c
GSIM_STORES := $(if $(SANITIZE),,-fsanitize=thread)
GSIM_ZONE   := $(wildcard src/shm/*.c)

$(GSIM_ZONE:src/%.c=$(GSIM_BUILD)/%.o) $(GSIM_BUILD)/gsim_session.o: \
    GSIM_TOLD := $(GSIM_STORES)

GSIM_OBJS   := $(GSIM_SRC:src/%.c=$(GSIM_BUILD)/%.o) \
               $(addprefix $(GSIM_BUILD)/,$(notdir $(GSIM_OWN:.c=.o)))

$(GSIM_BUILD)/%.o: src/%.c | build/nginx/Makefile
	@mkdir -p $(@D)
	$(CC) $(GSIM_CFLAGS) $(GSIM_TOLD) $(LINT_INCLUDES) -MMD -MP -c -o $@ $<

$(GSIM_BUILD)/%.o: t/gsim/%.c | build/nginx/Makefile
	@mkdir -p $(@D)
	$(CC) $(GSIM_CFLAGS) $(GSIM_TOLD) $(LINT_INCLUDES) -It/gsim -MMD -MP \
	    -c -o $@ $<

$(GSIM_BUILD)/%.o: t/lib/%.c | build/nginx/Makefile
	@mkdir -p $(@D)
	$(CC) $(GSIM_CFLAGS) $(LINT_INCLUDES) -MMD -MP -c -o $@ $<

$(GSIM): $(GSIM_OBJS)
	$(CC) $(GSIM_CFLAGS) $(GSIM_WRAP) -o $@ $^ -lyajl -lpthread

-include $(wildcard $(GSIM_BUILD)/*.d $(GSIM_BUILD)/*/*.d)

# some thousands of histories
gsim: $(GSIM)
	$(GSIM) --seeds $(GSIM_SEEDS) --quiet
	$(GSIM) --sessions --seeds $(GSIM_SEEDS) --quiet
	$(GSIM) --rich --seeds $(GSIM_SEEDS) --quiet
	$(GSIM) --rich --shortage --seeds $(GSIM_SEEDS) --quiet

# compilers take most of the time, and optimize for a few histories only
MUTANT_CFLAGS := $(filter-out -g -O2,$(GSIM_CFLAGS)) -O1

# src/ broken in one place after the other, which the histories have to find
gsim-mutants: $(GSIM)
	MUTANT_CC='$(CC) $(MUTANT_CFLAGS) $(GSIM_STORES) $(LINT_INCLUDES)' \
	    MUTANT_LINK='$(CC) $(GSIM_CFLAGS) $(GSIM_WRAP)' \
	    $(PYTHON) t/gsim/mutants.py $(GSIM_BUILD) $(GSIM_MUTANTS)

GSIM_SEEDS ?= $(if $(SANITIZE),500,4000)

# Histories for SOAK_SECONDS, each processor from seeds of its own.  SEED says
# where they begin; the time does, if it does not.
SOAK_SECONDS ?= 600
SEED         ?= $(shell date +%s)000

soak: $(GSIM)
	@echo "seeds from $(SEED) on, $(SOAK_SECONDS) s"
	@pids=; for i in $$(seq $$(nproc)); do \
	    $(GSIM) --from $$(($(SEED) + i * 1000000000000)) \
	        --seconds $(SOAK_SECONDS) & pids="$$pids $$!"; \
	done; failed=0; for pid in $$pids; do wait $$pid || failed=1; done; \
	exit $$failed

# The caches and files of python and pytest stay out of the tree, too.
PYTEST := PYTHONPYCACHEPREFIX=$(ROOT)/build/pycache \
          PYTEST_DEBUG_TEMPROOT=$(ROOT)/build \
          $(PYTHON) -m pytest -o cache_dir=$(ROOT)/build/pytest_cache

# Most of the time they wait: files of tests run beside each other.
JOBS     ?= 3
PARALLEL := -n $(JOBS) --dist loadfile
FILES     = $(foreach name,$(T),$(wildcard t/*/test_$(name).py))

integration: build $(SHORTAGE) $(ARCHIVE)
	scripts/build-aioquic
	$(PYTEST) t $(PARALLEL) $(PYTEST_ARGS)

# Which answers of docs/openapi.yaml no test of a whole run sees.
openapi-seen: export OPENAPI_SEEN := $(ROOT)/build/openapi-seen
openapi-seen:
	rm -f $(OPENAPI_SEEN)
	$(MAKE) integration
	$(PYTHON) t/lib/unseen.py $(OPENAPI_SEEN)

# With Debian's nginx: those that cannot run under the sanitizers, and the files
# that T names: x for t/*/test_x.py
plain: build $(SHORTAGE) $(ARCHIVE)
	scripts/build-aioquic
	$(PYTEST) t -m plain $(PARALLEL) $(PYTEST_ARGS)
	$(if $(T),$(PYTEST) $(FILES) -m 'not plain' $(PARALLEL) $(PYTEST_ARGS))

# The module for every nginx that is found, and the tests with one of them, all
# or those that T names: x for t/*/test_x.py
nginxes:
	scripts/build-nginxes

integration-nginx: NGINX_BIN := $(ROOT)/build/nginxes/$(WITH)/nginx
integration-nginx: ZK_LOCK_MODULE := $(dir $(NGINX_BIN))$(notdir $(MODULE))
integration-nginx: $(SHORTAGE) $(ARCHIVE)
	@test -n "$(WITH)" || { echo "which nginx? WITH=trixie" >&2; exit 1; }
	scripts/build-nginxes binary $(WITH)
	scripts/build-aioquic
	$(PYTEST) $(or $(FILES),t) $(PARALLEL) $(PYTEST_ARGS)

test: unit gsim integration

# make check T=t/api/test_x.py::name, or T=t/unit/test_view.c
check: $(if $(filter %.c,$(T)),$(TEST_BUILD)/$(basename $(notdir $(T))),\
         build $(SHORTAGE) $(ARCHIVE))
	@test -n "$(T)" || { echo "which test? T=..." >&2; exit 1; }
	$(if $(filter %.c,$(T)),./$<,$(PYTEST) $(T) $(PYTEST_ARGS))

asan:
	scripts/build-asan

# The C tests again, and the integration tests with nginx and the module under
# the sanitizers, but for the few that are marked as plain.
test-asan: asan
	$(MAKE) unit gsim SANITIZE=1
	$(MAKE) integration-asan

integration-asan: NGINX_BIN := $(ROOT)/$(ASAN)/sbin/nginx
integration-asan: ZK_LOCK_MODULE := $(ROOT)/$(ASAN)/modules/$(notdir $(MODULE))
integration-asan: $(COMMAND) $(SHORTAGE) $(ARCHIVE)
	$(PYTEST) $(or $(T),t) -m 'not plain' $(PARALLEL) $(PYTEST_ARGS)

# Races between the library's threads and the event loop: the mailbox by itself,
# which is to be found without its mutex, and nginx where sessions come and go.
TSAN       := build/tsan
TSAN_TESTS := $(wildcard $(addprefix t/*/test_,wait.py expiry.py outage.py))

$(TSAN)/test_mailbox $(TSAN)/test_mailbox_planted: t/unit/test_mailbox.c \
        src/base/mailbox.c src/base/mailbox.h
	@mkdir -p $(@D)
	sed '$(if $(findstring planted,$@),/pthread_mutex_\(un\)\?lock/d)' \
	    src/base/mailbox.c > $@.mailbox.c
	$(CC) -std=gnu11 -g -O1 -fsanitize=thread -Isrc -o $@ \
	    t/unit/test_mailbox.c $@.mailbox.c -lpthread -lcmocka

tsan-unit: $(TSAN)/test_mailbox $(TSAN)/test_mailbox_planted
	$(TSAN)/test_mailbox
	@if $(TSAN)/test_mailbox_planted > $(TSAN)/planted.log 2>&1; then \
	    echo "a mailbox without its mutex was not found" >&2; exit 1; fi
	@grep -q 'ThreadSanitizer: data race' $(TSAN)/planted.log || \
	    { cat $(TSAN)/planted.log >&2; exit 1; }

tsan-build:
	scripts/build-asan thread

tsan: tsan-unit tsan-build
	$(MAKE) integration-tsan

integration-tsan: NGINX_BIN := $(ROOT)/$(TSAN)/sbin/nginx
integration-tsan: ZK_LOCK_MODULE := $(ROOT)/$(TSAN)/modules/$(notdir $(MODULE))
integration-tsan:
	$(PYTEST) $(or $(T),$(TSAN_TESTS)) $(PARALLEL) $(PYTEST_ARGS)

# Each for FUZZ_SECONDS, or FUZZ_RUNS inputs; or those of FUZZ="name token".
FUZZ := $(patsubst t/fuzz/fuzz_%.c,%,$(sort $(wildcard t/fuzz/fuzz_*.c)))

fuzz-build: $(FUZZ:%=build/fuzz/fuzz_%)

fuzz: fuzz-build
	t/fuzz/fuzz.sh run $(FUZZ)

# The fuzzers have to find what is planted.
fuzz-mutants: build/nginx/Makefile
	t/fuzz/mutants.py

build/fuzz/fuzz_%: t/fuzz/fuzz_%.c $(SOURCES) $(wildcard t/fuzz/*.[ch]) \
                   $(wildcard command/*.[ch]) \
                   t/lib/nginx_core.c t/fuzz/fuzz.sh build/nginx/Makefile
	@mkdir -p $(@D)
	t/fuzz/fuzz.sh build $* . $@

# One worker from its start to its end, in Debian's nginx.
valgrind: build
	VALGRIND_NGINX=$(NGINX_BIN) NGINX_BIN=$(ROOT)/t/lib/valgrind-nginx \
	    $(PYTEST) t/perf/test_leaks.py $(PYTEST_ARGS)

bench: build
	bench/run $(BENCH_ARGS)

# A real ensemble and real gateways under faults: t/chaos/README.md.  The
# variables CHAOS_SECONDS, CHAOS_FAULTS, CHAOS_SEED and others are passed on.
chaos: build
	rm -rf build/chaos
	PYTHONPYCACHEPREFIX=$(ROOT)/build/pycache \
	    $(PYTHON) t/chaos/run.py build/chaos


# --- the package ------------------------------------------------------------

package:
	scripts/build-package

# installed, upgraded and purged in a clean root: needs root
test-package:
	scripts/test-package


# --- reading ----------------------------------------------------------------

SCRIPTS = $(sort $(shell grep -rlsE '^\#!.*[/ ](ba)?sh' quickstart runtests \
                         .ci scripts t bench command docker debian/tests \
                         $(wildcard debian/*.postrm) \
                         --include='*' --exclude='*.py'))

# nginx's headers, as the build has them; the last two are there from 1.25 on
LINT_INCLUDES = -Isrc -Ibuild/nginx $(addprefix -I$(NGINX_SRC)/src/, \
    core event event/modules os/unix http http/modules http/v2) \
    $(addprefix -I,$(wildcard $(NGINX_SRC)/src/event/quic \
                              $(NGINX_SRC)/src/http/v3))

# Without the checks that want memcpy_s() and its like in the place of memcpy().
# What the analyzer says is to be read, but fails nothing: of an intrusive queue
# or a count of references it cannot know what holds.
TIDY_CHECKS := -* clang-analyzer-* bugprone-infinite-loop bugprone-sizeof-* \
    bugprone-suspicious-* -clang-analyzer-security.insecureAPI.*

lint: format-check build/nginx/Makefile
	$(MAKE) -f $(ROOT)/build/nginx/Makefile -C $(NGINX_SRC) \
	    $(ROOT)/build/nginx/ngx_http_zk_lock_page.h
	scripts/check-folders
	@for script in $(SCRIPTS); do \
	    case $$(head -1 $$script) in *bash*) sh=bash;; *) sh=sh;; esac; \
	    $$sh -n $$script || exit 1; \
	done
	@if command -v shellcheck > /dev/null; then \
	    set -x; shellcheck -S warning $(SCRIPTS); \
	else echo "shellcheck is not installed: left out"; fi
	@if command -v cppcheck > /dev/null; then \
	    set -x; cppcheck --quiet --std=c11 --error-exitcode=1 --inline-suppr \
	        --enable=warning,performance,portability -Isrc src command; \
	else echo "cppcheck is not installed: left out"; fi
	@if command -v clang-tidy > /dev/null; then \
	    set -x; clang-tidy --quiet --warnings-as-errors='bugprone-*' \
	        --checks='$(subst $(space),$(comma),$(TIDY_CHECKS))' \
	        $(filter %.c,$(SOURCES)) -- -std=gnu11 $(LINT_INCLUDES); \
	else echo "clang-tidy is not installed: left out"; fi

format-check:
	scripts/check-style

lint-openapi:
	scripts/lint-openapi

lint-manifests:
	scripts/lint-manifests


# --- containers -------------------------------------------------------------

# docs/containers.md; both need root
image:
	scripts/test-image export

test-image:
	scripts/test-image smoke cluster


# --- the rest ---------------------------------------------------------------

install-deps:
	scripts/install-deps

quickstart:
	./quickstart

# the command, its completion and its manual; the module goes to a folder of
# nginx, see docs/install.md
PREFIX ?= /usr/local

install: $(COMMAND)
	install -D -m 755 $(COMMAND) $(DESTDIR)$(PREFIX)/bin/zk-lock
	install -D -m 644 command/zk-lock.bash \
	    $(DESTDIR)$(PREFIX)/share/bash-completion/completions/zk-lock
	install -D -m 644 man/zk-lock.1 \
	    $(DESTDIR)$(PREFIX)/share/man/man1/zk-lock.1

clean:
	rm -rf build

help:
	@echo "build (default)   the module, $(MODULE), and $(COMMAND)"
	@echo "man               the man page: $(MAN)"
	@echo "package           Debian packages: build/package/*.deb"
	@echo "test-package      these installed, upgraded and purged (root)"
	@echo "unit              cmocka tests of parts of src, and of the checks"
	@echo "gsim, soak        gateways on a simulated ZooKeeper (SOAK_SECONDS=)"
	@echo "gsim-mutants      these against planted bugs (GSIM_MUTANTS=)"
	@echo "integration       pytest with nginx and ZooKeeper (PYTEST_ARGS=)"
	@echo "openapi-seen      that, and which described answers no test sees"
	@echo "test              unit, gsim and integration"
	@echo "check T=...       one: t/api/test_x.py::name or t/unit/test_x.c"
	@echo "nginxes           the module for several nginx (NGINX_SOURCES=)"
	@echo "integration-nginx the tests with one of them (WITH=trixie)"
	@echo "asan, test-asan   nginx and module under sanitizers; their tests"
	@echo "tsan              the mailbox and nginx under ThreadSanitizer"
	@echo "fuzz              the fuzzers (FUZZ_SECONDS=60, FUZZ_RUNS=, FUZZ=)"
	@echo "fuzz-mutants      the fuzzers against planted bugs"
	@echo "valgrind          one worker and one call of every kind, for leaks"
	@echo "bench             measure (BENCH_ARGS=)"
	@echo "chaos             an ensemble and gateways under faults (CHAOS_SECONDS=)"
	@echo "lint              folders, shellcheck, cppcheck, clang-tidy, style"
	@echo "lint-openapi      docs/openapi.yaml, by Redocly CLI from npm"
	@echo "lint-manifests    kubernetes/ and compose files, by types from npm"
	@echo "format-check      80 columns, tabs, blanks, comments"
	@echo "image             build/image/NAME.tar for docker load (root)"
	@echo "test-image        the images, and containers of compose files (root)"
	@echo "install-deps      Debian packages for the build (root or sudo)"
	@echo "quickstart        a ZooKeeper, an nginx and a lock, to try"
	@echo "install           the command zk-lock (DESTDIR=, PREFIX=/usr/local)"
	@echo "clean             remove build/"
