#!/usr/bin/python3
"""Shows that each fuzzer can fail.

Each line of MUTANTS plants a bug: a text in a file of src/ or command/, which
has to be there once, is replaced in a copy.  The fuzzer is built from that copy
and runs on the corpus until the bug is found, for a minute at most.

usage: mutants.py [NAME]...
"""

import concurrent.futures
import os
import shutil
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))

sys.path.insert(0, os.path.join(ROOT, "t", "lib"))

import planted  # noqa: E402

OUT = os.path.join(ROOT, "build", "fuzz", "mutants")
SECONDS = 60

NAME = "base/name.c"
TEXT = "base/text.c"
JSON = "base/json.c"
ARGS = "base/args.c"
QUERY = "base/args.c"
CDATA = "base/claim_data.c"
VIEW = "base/view.c"
MAP = "shm/layout.c"
RECORD = "shm/record.c"
ERRAND = "shm/errand.c"
ANSWER = "../command/json.c"
LOOK = "../command/look.c"

# fuzzer, file, the text, the replacement
MUTANTS = [
    ("name", NAME, "code <= 0xf8ff) || code >= 0xfff0)",
     "code <= 0xf8ff) || code > 0xfff0)"),
    ("name", TEXT, "i > start + 4)", "i > start + 5)"),
    ("name", TEXT, "if (left == 6 || (bits & ((1U << left) - 1)) != 0) {",
     "if (left == 6) {"),
    ("name", TEXT, "if (*at == len) {", "if (*at > len) {"),
    ("name", NAME, "if (slash && (n != 0 || i + size != len)) {",
     "if (slash && i + size != len) {"),
    ("name", NAME, "} else if (i == hash) {", "} else if (i > hash) {"),
    ("name", NAME, "} else if (len - i >= 3 && memcmp(p, \"%2F\", 3) == 0) {",
     "} else if (len - i > 3 && memcmp(p, \"%2F\", 3) == 0) {"),
    ("name", NAME, "&& at <= ZKL_NAME_MAX - ZKL_SHA1_TEXT)", ")"),

    ("token", NAME, "for (i = 0; i < path_len; i++) {",
     "for (i = 1; i < path_len; i++) {"),
    ("token", NAME, "if (mode >= ZKL_MEMBER && (!has_id",
     "if (mode == ZKL_MEMBER && (!has_id"),
    ("token", NAME + ":zkl_name_token_read", "|| seq > ZKL_SEQ_MAX)\n",
     "        )\n"),

    ("json", JSON, "&& !zkl_json_blank(text + r->end, len - r->end))",
     "&& 0)"),
    ("json", JSON, "copy.size = ZKL_DATA_MAX;",
     "copy.size = ZKL_DATA_MAX + 8;"),
    ("json", JSON, "if (second != half) {", "if (second > half) {"),

    ("args", ARGS, ": zkl_text_shown_check(text, len)))", ": 1))"),
    ("args", ARGS, "if (rc < 0 || (rc == 0 && len < n)) {",
     "if (rc < 0) {"),
    ("args", ARGS, "args->nnames + len > ZKL_NAMES_BYTES)",
     "args->nnames + len > ZKL_NAMES_BYTES + 1)"),
    ("args", QUERY, "        if (n == size) {", "        if (n > size) {"),

    ("claim_data", CDATA, "if (text[i] == '\"' || text[i] == '\\\\') {",
     "if (text[i] == '\"') {"),
    ("claim_data", CDATA, '"holds",    ZKL_NUMBER,  2,',
     '"holds",    ZKL_NUMBER,  3,'),
    ("claim_data", "base/claim_data.h", "2 * ZKL_FULL_MAX + 454)",
     "2 * ZKL_FULL_MAX + 430)"),
    ("claim_data", CDATA,
     "if (len < (size_t) f->min || len > (size_t) f->max) {",
     "if (len < (size_t) f->min) {"),

    ("view", VIEW, "if (++n == capacity) {", "if (++n > capacity) {"),
    ("view", VIEW, "return ahead != ZKL_READ || behind",
     "return ahead != ZKL_READ && behind"),
    ("view", VIEW, "!entry->misnumbered && entry->seq > seq) {",
     "!entry->misnumbered && entry->seq < seq) {"),

    ("view", VIEW, "entry->mode == ZKL_WRITE || !view->watched",
     "!view->watched"),
    ("view", VIEW + ":zkl_view_remove",
     "    {\n        view->complete_through = zkl_view_place(entry) - 1;",
     "    {\n        view->complete_through = zkl_view_place(entry);"),
    ("view", VIEW, "if (zkl_view_place(*waiter) > view->complete_through) {",
     "if (zkl_view_place(*waiter) > view->complete_through + 2) {"),
    ("view", VIEW, "if (!view->watched && view->nlocal == 0) {",
     "if (0) {"),
    ("view", VIEW, "s->misnumbered = (s->seq >= given",
     "s->misnumbered = (0 && given"),
    ("view", VIEW, "view->complete_through = given - 1;",
     "view->complete_through = (n != 0) ? children[n - 1].seq : -1;"),

    ("zone", MAP, "    if (record >= map->ncells) {",
     "    if (record > map->ncells + 5000) {"),
    ("zone", RECORD, "        if (cell->slot != zone->slot) {",
     "        if (cell->slot == zone->slot) {"),
    ("zone", RECORD, "            cell->seq = -1;\n            cell->gen++;",
     "            cell->gen++;"),
    ("zone", ERRAND, "ZKL_ERRAND_REPLIED + reply", "ZKL_ERRAND_REPLIED"),
    ("zone", ERRAND, "*errand = place->errand;",
     "errand->seq = place->errand.seq;"),
    ("zone", ERRAND, "zkl_place_set(word, ZKL_ERRAND_REPLIED + reply)",
     "zkl_place_set(word, ZKL_ERRAND_KEPT)"),

    ("command", ANSWER, "p[2] <= 0xae)", "p[2] < 0xae)"),
    ("command", ANSWER, "strlen(body) != len", "len == 1"),
    ("command", LOOK, "before = watched ? \" \" : \"\\n\";",
     "before = \"\\n\";"),
    ("command", LOOK, "body[len - 1] == '\\n' ? \"\" : \"\\n\"", "\"\\n\""),
]


def plant(number, name, file, old, new):
    """Returns a tree with the bug planted."""
    tree = os.path.join(OUT, "%s-%d" % (name, number))
    shutil.rmtree(tree, ignore_errors=True)
    for folder in "src", "command":
        shutil.copytree(os.path.join(ROOT, folder), os.path.join(tree, folder))

    path = os.path.join(tree, "src", planted.file_of(file))
    with open(path, encoding="utf-8") as source:
        text = source.read()

    with open(path, "w", encoding="utf-8") as source:
        source.write(planted.plant(text, file, old, new))

    return tree


def limit_of(name):
    """The same longest input as fuzz.sh has."""
    with open(os.path.join(ROOT, "t/fuzz/fuzz.sh"), encoding="utf-8") as f:
        return f.read().split("[%s]=" % name)[1].split()[0]


def hunt(number):
    """Returns whether a bug was found, and a line about it."""
    name, file, old, new = MUTANTS[number]
    what = "%s: %s: %s" % (name, file, " ".join(new.split()))

    try:
        tree = plant(number, name, file, old, new)
    except ValueError as error:
        return False, "NOT PLANTED: %s: %s" % (name, error)

    program = os.path.join(tree, "fuzz")
    script = os.path.join(ROOT, "t/fuzz/fuzz.sh")

    built = subprocess.run([script, "build", name, tree, program],
                           cwd=ROOT, stdout=subprocess.PIPE,
                           stderr=subprocess.STDOUT, text=True, check=False)
    if built.returncode != 0:
        return False, "NOT BUILT: %s\n%s" % (what, built.stdout)

    work = os.path.join(tree, "work")
    os.mkdir(work)

    command = [program, "-max_total_time=%d" % SECONDS, "-timeout=20",
               "-max_len=" + limit_of(name), "-artifact_prefix=%s/" % tree]
    words = os.path.join(ROOT, "t/fuzz/dict/%s.dict" % name)
    if os.path.exists(words):
        command.append("-dict=" + words)
    corpus = os.path.join(ROOT, "t/fuzz/corpus", name)
    command += [work] + ([corpus] if os.path.isdir(corpus) else [])

    begin = time.monotonic()
    with open(os.path.join(tree, "log"), "w", encoding="utf-8") as log:
        ran = subprocess.run(command, cwd=ROOT, stdout=log, stderr=log,
                             check=False)
    seconds = time.monotonic() - begin

    if ran.returncode == 0:
        return False, "NOT FOUND: " + what

    return True, "found after %d s: %s" % (seconds, what)


def main():
    wanted = sys.argv[1:]
    numbers = [i for i, mutant in enumerate(MUTANTS)
               if not wanted or mutant[0] in wanted]
    missed = 0

    with concurrent.futures.ThreadPoolExecutor(max_workers=2) as pool:
        for found, line in pool.map(hunt, numbers):
            print(line, flush=True)
            missed += not found

    print("%d found, %d missed" % (len(numbers) - missed, missed))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
