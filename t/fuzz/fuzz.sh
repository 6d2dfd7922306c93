#!/bin/bash
# Builds the fuzzers of t/fuzz, runs each fuzzer from a corpus, and keeps the
# findings below build/fuzz/.  See t/fuzz/README.md.
#
# usage: t/fuzz/fuzz.sh run [NAME]...       runs all fuzzers, or these
#        t/fuzz/fuzz.sh build NAME TREE OUT builds from src/ or command/ of TREE
#        t/fuzz/fuzz.sh one NAME            runs a fuzzer that is built
#        t/fuzz/fuzz.sh merge NAME          adds new inputs to the corpus
#
#   FUZZ_SECONDS   seconds that each fuzzer runs (60)
#   FUZZ_RUNS      inputs that each fuzzer runs, instead
#   FUZZ_JOBS      fuzzers that run at the same time (2)

set -eu
cd "$(dirname "$0")/../.."

names=(name token json args claim_data view zone command)
out=build/fuzz
nginx=/usr/share/nginx/src/src

# the longest input that still pays
declare -A longest=(
    [name]=500 [token]=300 [json]=1400 [args]=2600 [claim_data]=2000 [view]=120
    [zone]=400 [command]=1000
)

flags=(
    -std=gnu11 -g -O1 -D_GNU_SOURCE -Wall -Wextra -Werror
    "-fsanitize=fuzzer,address,undefined"
    -fno-sanitize-recover=all -fno-omit-frame-pointer
)

wrapped=(kill open read write close eventfd)

main()
{
    case ${1:-} in
    run)   shift; run "$@" ;;
    build) build "$2" "$3" "$4" ;;
    one)   one "$2" ;;
    merge) merge "$2" ;;
    *)     sed -n '2,/^$/s/^# \{0,1\}//p' "$0"; exit 2 ;;
    esac
}

build() # NAME TREE OUT
{
    local sources=("t/fuzz/fuzz_$1.c" t/fuzz/fuzz.c) more=(-I"$2/src" -It/fuzz)

    case $1 in
    zone)
        sources+=(t/fuzz/ngx_stub.c t/lib/nginx_core.c
                  "$2"/src/base/{name,text}.c "$2"/src/shm/*.c)
        more+=(-Ibuild/nginx "-I$nginx/core" "-I$nginx/event"
               "-I$nginx/event/modules" "-I$nginx/os/unix"
               "-I$nginx/event/quic"
               "${wrapped[@]/#/-Wl,--wrap=}")
        ;;
    command)
        sources+=("$2"/command/*.c)
        more=(-It/fuzz -Dmain=zk_lock_main -lcurl -lyajl)
        ;;
    *)
        sources+=(t/fuzz/naive_json.c "$2"/src/base/*.c)
        more+=(-lyajl)
        ;;
    esac

    "${CLANG:-clang}" "${flags[@]}" -o "$3" "${sources[@]}" "${more[@]}"
}

run() # [NAME]...
{
    [ $# -ne 0 ] || set -- "${names[@]}"

    mkdir -p $out/found
    printf '%s\n' "$@" | xargs -P "${FUZZ_JOBS:-2}" -I '{}' bash "$0" one '{}'
}

# Prints a line with the result, and more lines for a finding.
one() # NAME
{
    local log=$out/$1.log grown=$out/grown/$1 status=0 limit words=()

    limit=-max_total_time=${FUZZ_SECONDS:-60}
    [ -z "${FUZZ_RUNS:-}" ] || limit=-runs=$FUZZ_RUNS

    [ ! -f "t/fuzz/dict/$1.dict" ] || words=(-dict="t/fuzz/dict/$1.dict")

    mkdir -p "$grown" $out/found "t/fuzz/corpus/$1"

    $out/fuzz_"$1" "$limit" -max_len="${longest[$1]}" \
        -timeout=20 -rss_limit_mb=2048 -print_final_stats=1 \
        -artifact_prefix="$out/found/$1-" "${words[@]}" \
        "$grown" "t/fuzz/corpus/$1" > "$log" 2>&1 || status=$?

    summary "$1" $status "$log"

    [ $status -eq 0 ] || {
        grep -aE 'BROKEN|ERROR|runtime error|Test unit written' "$log" \
            || tail -n 5 "$log"
        exit 1
    }
}

summary() # NAME STATUS LOG
{
    awk -v name="$1" -v status="$2" '
        /^stat::number_of_executed_units:/ { executed = $2 }
        /^#[0-9]/ {
            if (executed == "") {
                last = substr($1, 2)
            }
            for (i = 1; i < NF; i++) {
                if ($i == "cov:") {
                    covered = $(i + 1)
                }
            }
        }
        END {
            printf "fuzz %-6s %9d inputs, %4d edges, %s\n", name, \
                   executed != "" ? executed : last, covered, \
                   status ? "A FINDING" : "no finding"
        }' "$3"
}

# The corpus is minimal: a few inputs for all code that is known to be
# reachable, the inputs of former findings, and the longest inputs, because long
# inputs are hard to find.
merge() # NAME
{
    local new=$out/merge-$1

    rm -rf "$new"
    mkdir -p "$new" "$out/grown/$1" "t/fuzz/corpus/$1"

    cp "t/fuzz/corpus/$1"/{found,long,seed}-* "$new" 2> /dev/null || true

    $out/fuzz_"$1" -set_cover_merge=1 -max_len="${longest[$1]}" "$new" \
        "t/fuzz/corpus/$1" "$out/grown/$1" > "$out/merge-$1.log" 2>&1

    rm -rf "t/fuzz/corpus/$1"
    mv "$new" "t/fuzz/corpus/$1"
    find "t/fuzz/corpus/$1" -type f | wc -l
}

main "$@"
