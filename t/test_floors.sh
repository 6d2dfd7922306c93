#!/bin/sh
# Shows of each rule of scripts/check-floors and scripts/check-style that it
# can fail, and that it does not when it is kept: in a tree of one file.

set -eu
cd "$(dirname "$0")/.."

temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT
trap 'exit 1' INT TERM HUP

count=0

# a tree in which FILE has the LINE passes, or breaks the RULE that is named
expect() # CHECK FILE LINE [RULE]
{
    check=$1 file=$2 line=$3 rule=${4:-}

    rm -rf "$temp/tree"
    mkdir -p "$temp/tree/src"
    printf '%b\n' "$line" > "$temp/tree/src/$file"
    count=$((count + 1))

    if "scripts/$check" "$temp/tree" > "$temp/says" 2>&1; then
        [ -z "$rule" ] && return
        echo "$check: not found in $file: $line" >&2
        exit 1
    fi

    if [ -z "$rule" ] || ! grep -qF "$rule" "$temp/says"; then
        echo "$check: $file with $line should say '$rule', but says:" >&2
        cat "$temp/says" >&2
        exit 1
    fi
}

floors() { expect check-floors "$@"; }
style() { expect check-style "$@"; }

gateway=ngx_http_zk_lock

# foreign libraries, each in its one file
floors ${gateway}_library.c '#include <zookeeper/zookeeper.h>'
floors ${gateway}_session.c '#include <zookeeper/zookeeper.h>' 'only src/'
floors ${gateway}_claim.c '#include <zookeeper/zookeeper.h>' 'only src/'
floors ${gateway}_library.h '#include <zookeeper/zookeeper.h>' 'only src/'
floors ${gateway}_module.c '# include "zookeeper.h"' 'only src/'
floors zk_lock_json.c '#include <yajl/yajl_gen.h>'
floors zk_lock_json.h '#include <yajl/yajl_gen.h>' 'only src/'
floors zk_lock_args.c '#include <yajl/yajl_parse.h>' 'only src/'
floors ${gateway}_answer.c '#include <yajl/yajl_parse.h>' 'only src/'

# plain C
floors zk_lock_view.c '#include <ngx_core.h>' 'plain C may not'
floors zk_lock_name.h '#include <zookeeper/zookeeper.h>' 'only src/'
floors zk_lock_mailbox.c "#include \"${gateway}_zone.h\"" 'plain C may not'

# up
floors zk_lock_view.c '#include "zk_lock_mailbox.h"' 'floor 0 may not'
floors ${gateway}_session.c "#include \"${gateway}_claim.h\"" 'floor 2 may not'
floors ${gateway}_zone.h "#include \"../src/${gateway}_api.h\"" \
    'floor 2 may not'
floors ${gateway}_claim.c "#include \"${gateway}_answer.h\"" 'floor 3 may not'
floors ${gateway}_variables.c "#include \"${gateway}_module.h\"" \
    'floor 4 may not'

# down
floors zk_lock_mailbox.c '#include "zk_lock_view.h"'
floors ${gateway}_module.c '#include "zk_lock_name.h"'

# beside
floors zk_lock_view.c '#include "zk_lock_name.h"'
floors ${gateway}_flight.c "#include \"${gateway}_library.h\""
floors zk_lock_json.c '#include "zk_lock_memory.h"'
floors zk_lock_args.h '#include "zk_lock_json.h"'
floors zk_lock_label.h '#include "zk_lock_json.h"'
floors zk_lock_json.c '#include "zk_lock_view.h"' 'see each other'
floors zk_lock_json.h '#include "zk_lock_args.h"' 'see each other'
floors zk_lock_args.c '#include "zk_lock_label.h"' 'see each other'
floors zk_lock_label.c '#include "zk_lock_args.h"' 'see each other'
floors zk_lock_memory.c '#include "zk_lock_name.h"' 'see each other'
floors zk_lock_name.c '#include "zk_lock_view.h"' 'see each other'
floors ${gateway}_zone.c "#include \"${gateway}_session.h\"" 'see each other'
floors ${gateway}_ask.c "#include \"${gateway}_claim.h\""
floors ${gateway}_api.c "#include \"${gateway}_answer.h\""

# HTTP
floors ${gateway}_session.c '#include <ngx_http.h>' 'may not know of HTTP'
floors ${gateway}_claim.h '#include <ngx_http_request.h>' 'may not know of HTTP'
floors ${gateway}_claim.c '#include <ngx_event.h>'
floors ${gateway}_answer.c '#include <ngx_http.h>'

# what has no place
floors ${gateway}_new.c 'int new;' 'has no floor'
floors ${gateway}_new.h '#include <ngx_http.h>' 'has no floor'
floors ${gateway}_module.c "#include \"${gateway}_new.h\"" 'has no floor'
floors ${gateway}_module.c '#include SOMETHING' 'other than a file name'

# style
style zk_lock_name.c '/* see http://127.0.0.1/ */ char  *s = "//";'
style zk_lock_name.c 'int  i;  // one' '// comment'
style zk_lock_name.c '\tint  i;' '^^^ tab'
style zk_lock_name.h 'int  i; ' '^^^ trailing blank'
style zk_lock_name.h "/* $(printf '%075d' 0) */" '^^^ longer than 80'
style zk_lock_name.h 'int  i;\c' 'no newline at the end'

# secrets
style zk_lock_name.c 'if (zk_lock_secret_equal(a.random, b.random, 12)) {'
style zk_lock_name.c 'if (memcmp(a->path, b->path, 12)\n    == 0) {'
style zk_lock_name.c 'if (memcmp(a->path, b, 12) == 0) {\n    a.random = 1;'
style zk_lock_name.c 'if (memcmp(a.random, b, 12) != 0) {' 'a secret is'
style zk_lock_name.c 'if (x\n    || ngx_memcmp(a,\n    b->random, 12)) {' \
    'a secret is'
style zk_lock_name.c 'return ngx_strncmp(ctx->secret, b, 32);' 'a secret is'

# nginx's headers before all others
style ${gateway}_file.c '#include <ngx_config.h>\n#include <sys/mman.h>'
style ${gateway}_file.c "#include \"${gateway}_file.h\"\n#include <stdio.h>"
style zk_lock_name.c '#include <stdio.h>'
style ${gateway}_file.c '#include <sys/mman.h>\n#include <ngx_config.h>' \
    '<sys/mman.h>'
style ${gateway}_file.c "#include <stdio.h>\n#include \"${gateway}_file.h\"" \
    '<stdio.h>'

echo "test_floors.sh: $count cases passed"
