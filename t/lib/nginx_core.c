
/*
 * The parts of nginx's core that src/ calls and that are the same wherever
 * src/ runs without nginx: in the simulation of gateways and in the fuzzers.
 *
 * Debian installs nginx's headers, not the source, so these few functions are
 * written again, as plainly as can be.  Programs with this file run one thread.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_md5.h>


static void nginx_core_tables(void) __attribute__((constructor));


ngx_pid_t         ngx_pid;
ngx_int_t         ngx_ncpu = 1;
ngx_uint_t        ngx_pagesize = 4096;
ngx_uint_t        ngx_process;
ngx_uint_t        ngx_test_config;
sig_atomic_t      ngx_terminate;
ngx_module_t      ngx_core_module;

static uint32_t   short_table[16];

uint32_t         *ngx_crc32_table_short = short_table;
uint32_t          ngx_crc32_table256[256];


/* the polynomial of zlib's CRC-32, bit by bit */

static void
nginx_core_fill(uint32_t *table, uint32_t n, int bits)
{
    int       k;
    uint32_t  i, c;

    for (i = 0; i < n; i++) {

        for (c = i, k = 0; k < bits; k++) {
            c = (c & 1) ? 0xedb88320 ^ (c >> 1) : c >> 1;
        }

        table[i] = c;
    }
}


static void
nginx_core_tables(void)
{
    nginx_core_fill(ngx_crc32_table256, 256, 8);
    nginx_core_fill(short_table, 16, 4);
}


ngx_int_t
ngx_memn2cmp(u_char *s1, u_char *s2, size_t n1, size_t n2)
{
    int  rc;

    rc = memcmp(s1, s2, n1 < n2 ? n1 : n2);

    return rc ? rc : (n1 > n2) - (n1 < n2);
}


void *
ngx_alloc(size_t size, ngx_log_t *log)
{
    (void) log;

    return malloc(size);
}


void *
ngx_calloc(size_t size, ngx_log_t *log)
{
    (void) log;

    return calloc(1, size);
}


void
ngx_explicit_memzero(void *buf, size_t n)
{
    ngx_memzero(buf, n);
}


ngx_uint_t
ngx_hash_key(u_char *data, size_t len)
{
    size_t      i;
    ngx_uint_t  key;

    for (key = 0, i = 0; i < len; i++) {
        key = ngx_hash(key, data[i]);
    }

    return key;
}


/* for a digest any hash will do */

void
ngx_md5_init(ngx_md5_t *ctx)
{
    ngx_memzero(ctx, sizeof(ngx_md5_t));
}


void
ngx_md5_update(ngx_md5_t *ctx, const void *data, size_t size)
{
    ctx->bytes = ctx->bytes * 31 + ngx_hash_key((u_char *) data, size);
}


void
ngx_md5_final(u_char result[16], ngx_md5_t *ctx)
{
    ngx_memzero(result, 16);
    ngx_memcpy(result, &ctx->bytes, sizeof(ctx->bytes));
}
