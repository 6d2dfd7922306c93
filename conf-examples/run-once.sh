#!/bin/sh
# Runs a command under a lock, or not at all if somebody else holds it: with
# one crontab on many machines each job runs on one of them at a time.  Needs
# a POSIX shell and curl.
#
# usage: run-once.sh [OPTION]... NAME COMMAND [ARGUMENT]...
#
#   -w SECONDS   how long to wait for the lock (0: try once)
#   -t SECONDS   the lease, 8 or more (10); it is renewed at a third of that
#   -g SECONDS   from TERM to KILL, for a command that has to end (2)
#   -m SECONDS   keep the lock for at least so long, also if the command ends
#                sooner: by so much the machines' clocks may differ (0)
#   -o OWNER     what others see of the holder (USER@HOST)
#   -u URL       where the locks are ($LOCKS, or http://127.0.0.1:8080/locks)
#   -K FILE      options for curl, as in ~/.curlrc: user, cert, cacert
#
# NAME is written as in a URL.  In a file in /etc/cron.d, where 75 shall be no
# failure:
#
#   LOCKS=http://locks.example.com:8080/locks
#   0 3 * * * www-data run-once.sh -m 60 report make-report || [ $? -eq 75 ]
#
# The exit code is that of the command (if a signal ended it, 128 and its
# number), or
#
#   64   this script was called in a wrong way
#   69   the gateway is out of reach, or neither grants nor says "taken"
#   70   the lock was lost while the command ran, and the command was ended
#   75   the lock is taken
#
# The command has LOCK_FENCING_TOKEN in its environment.  It has a session and
# a process group of its own, all of which gets the signals that are sent to
# this script.  INT and QUIT become TERM, since a shell lets what it starts in
# the background ignore them.  (Where there is no setsid(1), signals reach the
# command only, and not what it has started.)
#
# The command is ended, with TERM and -g later with KILL,
#
#   * when the gateway says that the lock is lost, at the next renewal;
#   * when nothing was heard from the gateway for so long that only -g and two
#     seconds are left of the lease, counted from before the last renewal that
#     was confirmed was sent;
#   * when this script is killed with -9: a guard, in a session of its own,
#     notices at once, ends the command and releases the lock.
#
# If all is killed at once, the lock is free when the lease is over.  What is
# not covered, and what the fencing token is for:
#
#   * the guard is killed as well, or the process that renews: the command runs
#     on without a lock;
#   * the machine stands still: the command runs on until this script does;
#   * the gateway's machine dies in the first three seconds of the lease, which
#     is not durable yet: the lock is lost zk_lock_session_timeout (10s) later,
#     however long the lease.  With "zk_lock_durable on" it is not.

newline='
'
unset answer token      # what came from outside would be exported
wait=0 lease=10 grace=2 hold=0 config=
owner=$(id -un 2> /dev/null || id -u)@$(uname -n)
url=${LOCKS:-http://127.0.0.1:8080/locks}

main()
{
    while getopts :w:t:g:m:o:u:K: option; do
        case $option in
        w) wait=$OPTARG ;;
        t) lease=$OPTARG ;;
        g) grace=$OPTARG ;;
        m) hold=$OPTARG ;;
        o) owner=$OPTARG ;;
        u) url=$OPTARG ;;
        K) config=$OPTARG ;;
        :) usage "-$OPTARG needs a value" ;;
        *) usage "-$OPTARG is no option" ;;
        esac
    done
    shift $((OPTIND - 1))

    [ $# -ge 2 ] || usage "NAME or COMMAND is missing"
    must_be_seconds -w "$wait"
    must_be_seconds -t "$lease"
    must_be_seconds -g "$grace"
    must_be_seconds -m "$hold"
    [ "$lease" -ge 8 ] || usage "-t $lease: a lease takes 8 seconds or more"
    [ $((lease * 2 / 3)) -ge $((grace + 3)) ] ||
        usage "-g $grace takes a longer lease than -t $lease: two thirds of" \
              "it have to be three seconds more"

    case $1 in
    *[?#]*) usage "NAME is written as in a URL: \"$1\" has a ? or # in it" ;;
    esac
    lock=${url%/}/$1
    shift

    trap 'leave 129' HUP
    trap 'leave 130' INT
    trap 'leave 131' QUIT
    trap 'leave 143' TERM

    start_guard
    acquire
    run "$@"
    leave "$status"
}

must_be_seconds() # OPTION VALUE
{
    case $2 in
    ''|*[!0-9]*|0?*)
        usage "$1 takes a whole number of seconds, and not \"$2\"" ;;
    esac
}

acquire()
{
    clock
    sent=$now

    # in the background, so that a signal ends it, and with it the wait
    curl -qg ${config:+-K "$config"} -sS -m $((wait + 10)) -X POST -G \
        --data-urlencode "wait=$wait" --data-urlencode "ttl=$lease" \
        --data-urlencode "owner=$owner" -w '\n%{http_code}' "$lock" \
        > "$dir/answer" 8<&- 9>&- &
    curl=$!
    echo "$curl" >&9
    wait "$curl"
    curl=

    answer=$(cat "$dir/answer")
    code=${answer##*"$newline"}
    case $code in
    201)     token=$(printf %s "$answer" |
                     sed -n 's/.*"token":"\([^"]*\)".*/\1/p') ;;
    423|429) die 75 "$lock is taken" ;;
    *)       die 69 "no lock from $lock: $answer" ;;
    esac

    # the lease began with the grant
    sent=$((sent + $(number waited_ms) / 1000))
    [ $(($(number ttl_ms) / 1000)) -ge "$lease" ] ||
        die 69 "$lock has no lease of $lease s"
}

run() # COMMAND [ARGUMENT]...
{
    LOCK_FENCING_TOKEN=$(number fencing_token)
    export LOCK_FENCING_TOKEN
    [ "$hold" -eq 0 ] || hold_until=$((sent + hold + 1))

    signal=''
    for name in HUP INT QUIT TERM USR1 USR2; do
        # shellcheck disable=SC2064
        trap "signal=$name; pass" $name
    done

    # shellcheck disable=SC2086
    ${setsid:+$setsid --} "$@" <&3 3<&- 8<&- 9>&- &
    job=$!
    target=${setsid:+-}$job
    echo "$target $token" >&9
    (exec 3<&- 8<&- 9>&-; keep) &
    keeper=$!
    [ -z "$signal" ] || pass

    # a signal interrupts the waiting, but does not end it; and whoever has
    # waited for the command's end already is told 127
    status=''
    while :; do
        signal=''
        wait "$job"
        code=$?
        [ $code -eq 127 ] && [ -n "$status" ] || status=$code
        [ -n "$signal" ] || break
    done

    trap '' HUP INT QUIT TERM USR1 USR2
    target=
    kill -s ALRM "$keeper" 2> /dev/null
    wait "$keeper" 2> /dev/null
    [ $? -ne 70 ] || { status=70 token=; }
}

pass() # $signal
{
    case $signal in INT|QUIT) signal=TERM ;; esac
    [ -z "$target" ] || kill_all "$signal"
}

# Not in a trap at the exit, which subshells of bash might run as well.
leave() # CODE
{
    status=$1
    trap '' HUP INT QUIT TERM USR1 USR2

    [ -z "$curl" ] || kill "$curl"
    [ -z "$target" ] || end_all
    [ -z "$token" ] || release || status=70
    if [ -n "$guard" ]; then
        # nothing is left to be ended
        echo "" >&9
        exec 9>&-
        wait "$guard"
    fi
    [ -z "$dir" ] || rm -rf "$dir"
    exit "$status"
}


# --- the lease ---------------------------------------------------------------

# Renews it until the lock is lost, or ALRM says that it is enough.
keep()
{
    trap '' HUP INT QUIT TERM USR1 USR2
    trap 'exec 2> /dev/null
          [ -z "$asleep" ] || [ "$!" = "$job" ] || kill -s KILL "$!"
          exit 0' ALRM
    pause=$((lease / 3))

    while time_left; do
        asleep=yes
        sleep $((pause < left ? pause : left)) &
        wait "$!"
        asleep=

        time_left || break
        before=$now
        call $((left < 10 ? left : 10)) PUT
        case $code in
        200)     sent=$before
                 lease=$(($(number expires_in_ms) / 1000))
                 pause=$((lease / 3)) ;;
        404|410) lost "the gateway says so" ;;
        *)       pause=1 ;;
        esac
    done

    lost "nothing was heard from the gateway"
}

# A second for the clock, which knows no parts of it, and one for delays.
time_left()
{
    clock
    left=$((sent + lease - grace - 2 - now))
    [ "$left" -gt 0 ]
}

lost() # WHY
{
    trap '' ALRM
    say "the lock is lost, $1: ending the command"
    end_all
    exit 70
}

# Fails if the lock had been lost before.
release()
{
    clock
    left=$((hold_until - now))
    for try in 1 2 3; do
        if [ "$left" -gt 0 ]; then
            call 5 PUT "?ttl=$left"
        else
            call 5 DELETE
        fi
        case $try,$code in
        ?,200|?,204) return 0 ;;
        1,404|1,410) say "the lock was lost before the command ended"
                     return 1 ;;
        ?,404|?,410) return 0 ;;
        esac
        sleep 1
    done
    say "no answer to the release: the lock is free when its lease is over"
}

# A call with the token, which is in no command line.  Sets answer and code.
call() # SECONDS METHOD [QUERY]
{
    answer=$(printf 'header = "Lock-Token: %s"\n' "$token" |
             curl -qg ${config:+-K "$config"} -K - -s -m "$1" -X "$2" \
                  -w '\n%{http_code}' "$lock$3")
    code=${answer##*"$newline"}
}

number() # MEMBER of $answer
{
    printf %s "$answer" | sed -n "s/.*\"$1\":\([0-9]*\).*/\1/p"
}

# Sets now; with a clock that nobody sets, if there is one.
clock()
{
    if [ -r /proc/uptime ]; then
        read -r now _ < /proc/uptime
        now=${now%.*}
    else
        now=$(date +%s)
    fi
}


# --- the end of the command --------------------------------------------------

# The guard reads what would have to be ended, from a pipe that only this
# process writes to: the end of the pipe is the end of this process.
start_guard()
{
    dir=$(mktemp -d) && mkfifo "$dir/pipe" || leave 69
    exec 3<&0 9<> "$dir/pipe" 8< "$dir/pipe"
    setsid=$(command -v setsid) || setsid=
    # shellcheck disable=SC2086
    $setsid sh "$0" --guard "$lock" "$grace" "$dir" "$config" \
        <&8 3<&- 8<&- 9>&- &
    guard=$!
}

guard() # LOCK GRACE DIRECTORY CONFIG
{
    trap '' HUP INT QUIT TERM USR1 USR2
    lock=$1 grace=$2 dir=$3 config=$4

    while read -r what secret; do
        target=$what token=$secret
    done

    rm -rf "$dir"
    [ -n "$target" ] || exit
    say "killed: ending what it has started"
    end_all
    [ -z "$token" ] || release
}

end_all()
{
    kill_all TERM || return
    i=0
    while [ $i -lt "$grace" ]; do
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

say()
{
    printf 'run-once.sh: %s\n' "$*" >&2
}

die() # CODE WORD...
{
    code=$1
    shift
    say "$*"
    leave "$code"
}

usage() # WORD...
{
    say "$*"
    echo "usage: run-once.sh [OPTION]... NAME COMMAND [ARGUMENT]...; the" \
         "options are told in its first lines" >&2
    exit 64
}

asleep='' curl='' dir='' guard='' target='' token='' hold_until=0

case ${1-} in
--guard) shift; guard "$@" ;;
*)       main "$@" ;;
esac
