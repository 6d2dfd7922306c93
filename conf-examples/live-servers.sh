#!/bin/sh
# Which servers are alive.  Needs a POSIX shell, curl, jq or python3 to list and
# to watch, and a gateway as in live-servers.conf.
#
# usage: live-servers.sh join NAME ADDRESS [COMMAND [ARGUMENT]...]
#        live-servers.sh list NAME
#        live-servers.sh watch NAME
#
#   join    lists ADDRESS under NAME, as long as this script runs and COMMAND
#           succeeds, which is run before and then every 15 s
#   list    prints the addresses, one a line; exits with 1, and tells why on
#           stderr, if they cannot be known: none and unknown are not the same
#   watch   prints them in one line, and again whenever they change
#
# LOCKS says where the locks are (http://127.0.0.1:8080/locks).  At most 1000
# addresses are told.

join() # ADDRESS [COMMAND [ARGUMENT]...]
{
    address=$1
    shift
    [ $# -gt 0 ] || set -- true

    while :; do
        if "$@"; then
            listen -X POST -G -d mode=member -d hold=connection \
                --data-urlencode "owner=$address"
            while read -r event || [ -n "$event" ]; do
                case $event in
                '{"event":"queued",'*)  ;;
                '{"event":"granted",'*) ;;
                '{"event":"alive"'*)    "$@" || break ;;
                *)                      say "$event"; break ;;
                esac
            done < "$dir/events"
            hang_up
        fi
        sleep 1
    done
}

watch()
{
    while :; do
        listen -H "Accept: application/x-ndjson"
        while read -r event || [ -n "$event" ]; do
            case $event in
            '{"event":"change",'*) addresses=$(owners) || break
                                   printf '%s\n' "$addresses" |
                                       paste -s -d ' ' - ;;
            '{"event":"alive"'*)   ;;
            *)                     say "$event"; break ;;
            esac
        done < "$dir/events"
        hang_up
        sleep 1
    done
}

# The first event of a stream is the list, also if nobody is on it.
list()
{
    listen -m 10 -w '\nstatus %{http_code}\n' \
        -H "Accept: application/x-ndjson"
    {
        read -r event
        case $event in
        '{"event":"change",'*) ;;
        *) say "no list at $lock: $event" "$(tail -n 1)"
           exit 1 ;;
        esac
    } < "$dir/events"
    hang_up

    addresses=$(owners) || { say "no list at $lock: $event"; exit 1; }
    [ -z "$addresses" ] || printf '%s\n' "$addresses"
}

# Those who hold the lock, and not those who wait.
owners() # of $event
{
    printf '%s\n' "$event" |
        case $reader in
        jq) jq -r '.holders[].owner // empty' ;;
        *)  python3 -c '
import json, sys
for holder in json.load(sys.stdin)["holders"]:
    if "owner" in holder:
        print(holder["owner"])' ;;
        esac
}

# There is a word every 15 s; a connection without one for 40 s is dead.  What
# comes is read by this process and no other: if it is killed, curl has nobody
# to write to, and ends.
listen() # CURL-ARGUMENT...
{
    curl -qg -sSN --connect-timeout 5 --speed-limit 1 --speed-time 40 "$@" \
        "$lock" > "$dir/events" &
    curl=$!
}

hang_up()
{
    kill "$curl" 2> /dev/null
    wait "$curl" 2> /dev/null
    curl=
}

leave()
{
    [ -z "$curl" ] || kill "$curl" 2> /dev/null
    rm -rf "$dir"
}

say()
{
    printf 'live-servers.sh: %s\n' "$*" >&2
}

usage()
{
    sed -n '2,/^$/s/^# \{0,1\}//p' "$0" >&2
    exit 64
}

case ${2-} in
*[?#]*) say "NAME is written as in a URL: \"$2\" has a ? or # in it"; exit 64 ;;
esac

what=${1-} lock=${LOCKS:-http://127.0.0.1:8080/locks}/${2-} curl=

case $what,$# in
join,1|join,2)         usage ;;
join,*|list,2|watch,2) shift 2 ;;
*)                     usage ;;
esac

if command -v jq > /dev/null; then
    reader=jq
elif command -v python3 > /dev/null; then
    reader=python3
elif [ "$what" != join ]; then
    say "needs jq or python3, to read JSON"
    exit 1
fi

dir=$(mktemp -d) || exit 1
trap leave EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM
mkfifo "$dir/events" || exit 1

"$what" "$@"
