#!/bin/sh
# Runs ./config as nginx's configure does, with two short stand-ins for nginx's
# scripts: ./config ends with a sentence that names what is missing.

set -eu
cd "$(dirname "$0")/../.."

top=$PWD
temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT
trap 'exit 1' INT TERM HUP

mkdir "$temp/auto"

# every header is there, except for the header that LACKS names
cat > "$temp/auto/feature" <<'END'
case "$ngx_feature_incs" in
*"${LACKS:-#none}"*) ngx_found=no ;;
*)                   ngx_found=yes ;;
esac
END
echo 'echo "module $ngx_module_name:" $ngx_module_libs' > "$temp/auto/module"

cat > "$temp/configure" <<'END'
ngx_addon_dir=$1
cd "${0%/*}"
. "$ngx_addon_dir/config"
END

fails() # HEADER SENTENCE
{
    if LACKS=$1 sh "$temp/configure" "$top" > "$temp/says"; then
        echo "config: goes on without $1" >&2
        exit 1
    fi

    if ! grep -q "error: ngx_http_zk_lock_module needs $2" "$temp/says"; then
        echo "config: should say that it needs $2, but says:" >&2
        cat "$temp/says" >&2
        exit 1
    fi
}

sh "$temp/configure" "$top" > "$temp/says"
grep -qx 'module ngx_http_zk_lock_module: .*' "$temp/says"

fails sys/eventfd.h 'eventfd()'
fails sys/random.h 'eventfd() and getrandom()'
fails zookeeper.h 'the ZooKeeper C client'
fails yajl_parse.h 'yajl 2'

echo "test_config.sh: 5 cases passed"
