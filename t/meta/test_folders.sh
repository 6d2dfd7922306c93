#!/bin/sh
# Shows for each rule of scripts/check-folders and scripts/check-style, in a
# tree with a single file, that a breach fails and that a correct file passes.

set -eu
cd "$(dirname "$0")/../.."

temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT
trap 'exit 1' INT TERM HUP

count=0

# a tree in which FILE has the LINE passes, or breaks the named RULE
expect() # CHECK FILE LINE [RULE]
{
    check=$1 file=$2 line=$3 rule=${4:-}

    rm -rf "$temp/tree"
    mkdir -p "$(dirname "$temp/tree/src/$file")"
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

folders() { expect check-folders "$@"; }
style() { expect check-style "$@"; }

# foreign libraries, each included in a single file
folders zk/client.c '#include <zookeeper/zookeeper.h>'
folders zk/session.c '#include <zookeeper/zookeeper.h>' 'only src/'
folders core/claim.c '#include <zookeeper/zookeeper.h>' 'only src/'
folders zk/client.h '#include <zookeeper/zookeeper.h>' 'only src/'
folders module.c '# include "zookeeper.h"' 'only src/'
folders base/json.c '#include <yajl/yajl_gen.h>'
folders base/json.h '#include <yajl/yajl_gen.h>' 'only src/'
folders base/args.c '#include <yajl/yajl_parse.h>' 'only src/'
folders http/answer.c '#include <yajl/yajl_parse.h>' 'only src/'

# plain C
folders base/view.c '#include <ngx_core.h>' 'plain C may not'
folders base/name.h '#include <zookeeper/zookeeper.h>' 'only src/'

# to a later folder
folders base/mailbox.c '#include "shm/zone.h"' 'base/ may not include'
folders zk/session.c '#include "core/claim.h"' 'zk/ may not include'
folders shm/zone.h '#include "http/api.h"' 'shm/ may not include'
folders core/claim.c '#include "http/answer.h"' 'core/ may not include'
folders http/variables.c '#include "conf.h"' 'http/ may not include'

# to the same folder, and to an earlier one
folders base/args.h '#include "base/json.h"'
folders core/call.c '#include "core/claim.h"'
folders shm/zone.c '#include "zk/session.h"'
folders module.c '#include "base/name.h"'
folders conf.c '#include "conf.h"'

# private headers
folders core/claim.c '#include "core/claim_int.h"'
folders http/api.c '#include "core/claim_int.h"' 'private to core/'

# HTTP
folders zk/session.c '#include <ngx_http.h>' 'may not know of HTTP'
folders core/claim.h '#include <ngx_http_request.h>' 'may not know of HTTP'
folders core/claim.c '#include <ngx_event.h>'
folders http/answer.c '#include <ngx_http.h>'

# files outside the folders, and includes that name no file
folders more/new.c 'int new;' 'in no folder'
folders module.c '#include "more/new.h"' 'in no folder'
folders module.c '#include SOMETHING' 'other than a file name'

# what is linked: shm/zone.c calls core/claim.c
for folder in base zk shm core http; do
    mkdir -p "$temp/objects/$folder"
    echo "int ${folder}_own(void) { return 1; }" |
        "${CC:-cc}" -x c -c -o "$temp/objects/$folder/own.o" -
done

if ! scripts/check-folders --objects "$temp/objects"; then
    echo "check-folders --objects: found what is not there" >&2
    exit 1
fi

echo 'int core_own(void); int up(void) { return core_own(); }' |
    "${CC:-cc}" -x c -c -o "$temp/objects/shm/zone.o" -

if scripts/check-folders --objects "$temp/objects" 2> "$temp/says" ||
   ! grep -qF 'shm/ calls core_own() of core/' "$temp/says"
then
    echo "check-folders --objects: a call to a later folder was not found" >&2
    exit 1
fi

# http/one.c and http/two.c call each other
rm "$temp/objects/shm/zone.o"
for pair in 'one two' 'two one'; do
    echo "int ${pair#* }(void); int ${pair% *}(void) { return ${pair#* }(); }" |
        "${CC:-cc}" -x c -c -o "$temp/objects/http/${pair% *}.o" -
done

if scripts/check-folders --objects "$temp/objects" 2> "$temp/says" ||
   ! grep -qF 'files of http/ need each other:' "$temp/says"
then
    echo "check-folders --objects: a circle in http/ was not found" >&2
    exit 1
fi

# style
style base/name.c '/* see http://127.0.0.1/ */ char  *s = "//";'
style base/name.c 'int  i;  // one' '// comment'
style base/name.c '\tint  i;' '^^^ tab'
style base/name.h 'int  i; ' '^^^ trailing blank'
style base/name.h "/* $(printf '%075d' 0) */" '^^^ longer than 80'
style base/name.h 'int  i;\c' 'no newline at the end'

# comments that name no subject
style base/name.h '/* The claim is deleted because the lease is over. */'
style base/name.h '/* He who has it may give it to others. */' '% of 9 words'

# secrets
style base/name.c 'if (zkl_name_secret_equal(a.random, b.random, 12)) {'
style base/name.c 'if (memcmp(a->path, b->path, 12)\n    == 0) {'
style base/name.c 'if (memcmp(a->path, b, 12) == 0) {\n    a.random = 1;'
style base/name.c 'if (memcmp(a.random, b, 12) != 0) {' 'a secret is'
style base/name.c 'if (x\n    || ngx_memcmp(a,\n    b->random, 12)) {' \
    'a secret is'
style base/name.c 'return ngx_strncmp(ctx->secret, b, 32);' 'a secret is'

# nginx's headers before all others
style core/file.c '#include <ngx_config.h>\n#include <sys/mman.h>'
style core/file.c "#include \"ngx_file.h\"\n#include <stdio.h>"
style base/name.c '#include <stdio.h>'
style core/file.c '#include <sys/mman.h>\n#include <ngx_config.h>' \
    '<sys/mman.h>'
style core/file.c "#include <stdio.h>\n#include \"ngx_file.h\"" \
    '<stdio.h>'

echo "test_folders.sh: $count cases passed"
