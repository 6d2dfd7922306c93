#!/bin/sh
# Runs a command while this machine is the leader: the one of all that run this
# script with the same NAME that has the lock of this name.  Needs a POSIX
# shell, curl, and a gateway as in election.conf.
#
# usage: leader.sh NAME COMMAND [ARGUMENT]...
#
#   LOCKS       where the locks are (http://127.0.0.1:8080/locks)
#   CANDIDATE   what others see of the leader (the name of the machine)
#   GRACE       seconds from TERM to KILL, for a command that has to end (5)
#
# The lock hangs on a connection that is kept.  When that ends, or the gateway
# says that it may end or that somebody asks for the lock, the command is
# ended, with TERM and later KILL, and this is a candidate again.  This script
# ends with the command, and with its exit code, or with the command at a
# signal (HUP, INT, TERM); then somebody else is the leader.
#
# If this script is killed with -9, a guard in a session of its own ends the
# command and gives up the lock.
#
# The command has LOCK_FENCING_TOKEN in its environment.  Let it show that to
# what it changes: if the gateway's machine dies, or the network between, this
# script may take longer to notice than ZooKeeper takes to have a new leader.

main()
{
    [ $# -ge 2 ] || usage
    lock=${LOCKS:-http://127.0.0.1:8080/locks}/$1
    shift

    dir=$(mktemp -d) || exit 1
    trap leave EXIT
    trap 'exit 129' HUP
    trap 'exit 130' INT
    trap 'exit 143' TERM
    mkfifo "$dir/life" "$dir/events" || exit 1

    # the guard sees the end of this process as the end of a pipe
    exec 9<> "$dir/life" 8< "$dir/life"
    # shellcheck disable=SC2086
    $setsid sh "$0" --guard "$dir" <&8 8<&- 9>&- &
    guard=$!

    until [ -e "$dir/ended" ]; do
        stand "$@"
        resign
        [ -e "$dir/ended" ] || sleep 1
    done
    exit "$status"
}

# A candidature, to its end.  A connection without a word for 40 s is dead,
# since there is one every 15 s.
stand() # COMMAND [ARGUMENT]...
{
    curl -q -sSN --connect-timeout 5 --keepalive-time 2 \
        --speed-limit 1 --speed-time 40 -X POST -G -d hold=connection \
        -d wait=1d --data-urlencode "owner=${CANDIDATE:-$(uname -n)}" "$lock" \
        > "$dir/events" 8<&- 9>&- &
    curl=$!
    echo "$curl" >&9

    while read -r event || [ -n "$event" ]; do
        case $event in
        '{"event":"granted",'*) lead "$@" ;;
        '{"event":"queued",'*|'{"event":"alive"'*) ;;
        *) echo "leader.sh: $event" >&2; break ;;
        esac
    done < "$dir/events"
}

# The command, and after it the end of the candidature.
lead() # COMMAND [ARGUMENT]...
{
    LOCK_FENCING_TOKEN=$(printf %s "$event" |
                         sed 's/.*"fencing_token":\([0-9]*\).*/\1/')
    export LOCK_FENCING_TOKEN

    # shellcheck disable=SC2086
    $setsid sh -c 'dir=$1 curl=$2; shift 2; "$@"; status=$?
                   : > "$dir/ended"; kill "$curl"; exit $status' \
        sh "$dir" "$curl" "$@" < /dev/null 8<&- 9>&- &
    job=$!
    target=${setsid:+-}$job
    echo "$curl $target" >&9
}

# The lock is given up after the command has ended, and not before.
resign()
{
    if [ -n "$job" ]; then
        [ -e "$dir/ended" ] || end_all
        wait "$job"
        status=$?
    fi
    kill "$curl" 2> /dev/null
    wait "$curl"
    job='' curl='' target=''
}

leave()
{
    trap '' HUP INT TERM
    [ -z "$curl" ] || resign
    if [ -n "$guard" ]; then
        # nothing is left to be ended
        echo "" >&9
        exec 9>&-
        wait "$guard"
    fi
    rm -rf "$dir"
}

guard() # DIRECTORY
{
    trap '' HUP INT TERM
    while read -r pid what; do
        curl=$pid target=$what
    done
    rm -rf "$1"
    [ -z "$target" ] || end_all
    [ -z "$curl" ] || kill "$curl"
}

end_all()
{
    kill_all TERM || return
    i=0
    while [ $i -lt "${GRACE:-5}" ]; do
        sleep 1
        kill_all 0 || return
        i=$((i + 1))
    done
    kill_all KILL
}

kill_all() # SIGNAL
{
    # in its first moment it has no group yet
    kill -s "$1" -- "$target" 2> /dev/null ||
        kill -s "$1" "${target#-}" 2> /dev/null
}

usage()
{
    sed -n '2,/^$/s/^# \{0,1\}//p' "$0" >&2
    exit 64
}

curl='' guard='' job='' target=''
setsid=$(command -v setsid) || setsid=

case ${1-} in
--guard) shift; guard "$@" ;;
*)       main "$@" ;;
esac
