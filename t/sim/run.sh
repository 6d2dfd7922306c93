#!/bin/sh
# Runs the simulation unchanged, which must pass, and once for each rule with
# that rule broken, which must fail.
#
# usage: run.sh [OPTION OF view_sim]...
#
# VIEW_SIM is the program; if not set, the program is built for this run.

set -eu
cd "$(dirname "$0")/../.."

temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT
trap 'exit 1' INT TERM HUP

if [ -z "${VIEW_SIM:-}" ]; then
    VIEW_SIM=$temp/view_sim
    "${CC:-cc}" -std=gnu99 -Wall -Wextra -Werror -O2 -g -Isrc \
        -o "$VIEW_SIM" t/sim/*.c src/base/view.c
fi

passed=0
failed=0

# expect STATUS NAME OPTION...
expect()
{
    expected=$1 name=$2
    shift 2

    status=0
    "$VIEW_SIM" "$@" > "$temp/says" 2>&1 || status=$?

    if [ "$status" -eq "$expected" ]; then
        passed=$((passed + 1))
        echo "ok: $name: $(grep -E '^(passed|failed): ' "$temp/says")"
        return
    fi

    failed=$((failed + 1))
    echo "NOT OK: $name: status $status instead of $expected"
    sed 's/^/    /' "$temp/says"
}

expect 0 'all rules kept' "$@"
sed 's/^/    /' "$temp/says"

for rule in $("$VIEW_SIM" --list-breaks); do
    expect 1 "$rule" "$@" --break "$rule"
done

echo "$passed passed, $failed failed"

[ "$failed" -eq 0 ]
