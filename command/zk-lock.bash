# bash completion for zk-lock(1).  The names of locks are asked of the gateway;
# a name may be any text, so it is never expanded, and quoted in the line.

_zk_lock_options() # COMMAND
{
    case $1 in
    run)   echo --wait --ttl --grace --min-hold --max-hold --owner --shared \
                --permits --taken-status --foreground --quiet ;;
    lead)  echo --ttl --grace --owner --foreground ;;
    join)  echo --ttl --grace ;;
    ls)    echo --prefix --owner --sort --json ;;
    show)  echo --owners --json ;;
    watch) echo --owners --json ;;
    break) echo --all ;;
    drain) echo --health --json ;;
    esac
    echo --url --config --help
}

_zk_lock_names() # CURRENT-WORD WORD...
{
    local current=$1 url='' config='' name
    shift
    while [ $# -gt 1 ]; do
        case $1 in
        -u|--url)    url=$2 ;;
        -K|--config) config=$2 ;;
        esac
        shift
    done

    while IFS= read -r name; do
        [[ $name == "$current"* ]] && COMPREPLY+=("$(printf %q "$name")")
    done < <(zk-lock ls ${url:+--url "$url"} ${config:+--config "$config"} \
                 2> /dev/null < /dev/null | sed -n 's/^[0-9][^:]*: //p')
}

_zk_lock()
{
    local current=${COMP_WORDS[COMP_CWORD]} words operands=0 word i

    # not COMP_WORDS, which takes the colons of a URL for words
    read -ra words <<< "${COMP_LINE:0:COMP_POINT}"
    [ -z "$current" ] || unset 'words[-1]'
    COMPREPLY=()

    for ((i = 2; i < ${#words[@]}; i++)); do
        word=${words[i]}
        case $word in
        --owners|--json|--shared|--foreground|--quiet|-q|--all|--help|-h) ;;
        -?|--*) ((i++)) ;;
        *) ((operands++)) ;;
        esac
    done

    case ${words[-1]} in
    -K|--config) mapfile -t COMPREPLY < <(compgen -f -- "$current"); return ;;
    --sort) mapfile -t COMPREPLY < <(compgen -W 'since waiting' -- "$current")
            return ;;
    esac
    # a value, which may be any text
    ((i > 2 && i > ${#words[@]})) && return

    if [ ${#words[@]} -eq 1 ]; then
        mapfile -t COMPREPLY < <(compgen -W \
            'run lead join ls show watch break drain' -- "$current")
    elif [[ $current == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W \
            "$(_zk_lock_options "${words[1]}")" -- "$current")
    else
        case ${words[1]},$operands in
        run,0|lead,0|join,0|show,0|break,0|watch,*)
            _zk_lock_names "$current" "${words[@]}" ;;
        drain,0)
            mapfile -t COMPREPLY < <(compgen -W 'on off status' \
                                         -- "$current") ;;
        esac
    fi
}

complete -o default -F _zk_lock zk-lock
