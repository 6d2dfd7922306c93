# Addon script for nginx's configure, which runs this when the Makefile is
# written: page.c includes a header that is made of page.html.

zk_lock_header=$NGX_OBJS/ngx_http_zk_lock_page.h
zk_lock_script=$ngx_addon_dir/scripts/embed-page
zk_lock_page=$ngx_addon_dir/src/http/page.html

cat << END >> $NGX_MAKEFILE

$NGX_OBJS/addon/http/page.o: $zk_lock_header

$zk_lock_header: $zk_lock_script $zk_lock_page ; \\
sh $zk_lock_script $zk_lock_page > \$@.new && mv \$@.new \$@

END
