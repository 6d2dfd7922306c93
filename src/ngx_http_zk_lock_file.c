
/*
 * The file that a map may lie in: zk_lock_state_path.
 *
 * The file is mapped, not written: what a worker stores is there when the
 * worker dies, and the master, and all of them at once, without a write to the
 * disk for any claim.  It is locked (shared) by every process that has it.
 * Who gets it exclusively knows that all others are dead, whatever their pids
 * say, which can be those of another container.
 *
 * A file is made under another name and renamed when it is whole, and is never
 * made shorter.  It is refused if it is not a plain file, not of our user, open
 * to others, of another size, layout, list of servers or boot: nothing in it
 * means anything then.
 *
 * All of it runs in the master, but for lasts(), which any process may ask.
 * Until a file is open map->own->file is -1, and until it is mapped
 * map->own->addr is NULL and the map's pointers are good for nothing.
 */


#include <ngx_config.h>

#include <sys/file.h>
#include <sys/mman.h>

#include "ngx_http_zk_lock_map.h"


static ngx_int_t ngx_http_zk_lock_map_open(ngx_http_zk_lock_map_t *map,
    ngx_http_zk_lock_map_conf_t *conf, size_t size,
    ngx_http_zk_lock_head_t *head, ngx_log_t *log);
static ngx_int_t ngx_http_zk_lock_map_take(ngx_http_zk_lock_map_t *map,
    ngx_http_zk_lock_map_conf_t *conf, int fd, size_t size,
    ngx_http_zk_lock_head_t *head, ngx_log_t *log);
static const char *ngx_http_zk_lock_map_check(ngx_http_zk_lock_map_conf_t *conf,
    int fd, size_t size, ngx_http_zk_lock_head_t *head);
static ngx_int_t ngx_http_zk_lock_map_create(ngx_http_zk_lock_map_t *map,
    ngx_http_zk_lock_map_conf_t *conf, size_t size,
    ngx_http_zk_lock_head_t *head, ngx_log_t *log);
static ngx_int_t ngx_http_zk_lock_map_write(
    ngx_http_zk_lock_map_conf_t *conf, int fd, size_t size,
    ngx_http_zk_lock_head_t *head, ngx_log_t *log);
static ngx_uid_t ngx_http_zk_lock_map_user(
    ngx_http_zk_lock_map_conf_t *conf);
static ngx_int_t ngx_http_zk_lock_map_share(int fd);


ngx_int_t
ngx_http_zk_lock_map_file(ngx_http_zk_lock_map_t *map,
    ngx_http_zk_lock_map_conf_t *conf, size_t size,
    ngx_http_zk_lock_head_t *head, ngx_log_t *log)
{
    ngx_int_t  rc;

    rc = ngx_http_zk_lock_map_open(map, conf, size, head, log);

    if (rc == NGX_DECLINED) {
        rc = ngx_http_zk_lock_map_create(map, conf, size, head, log);
    }

    return rc;
}


ngx_uint_t
ngx_http_zk_lock_map_lasts(ngx_http_zk_lock_map_t *map)
{
    struct stat  st;

    return map->own->file != -1
           && !map->superseded
           && fstat(map->own->file, &st) == 0
           && st.st_nlink != 0;
}


/*
 * NGX_DECLINED: there is no file, or none that can be used.  One that is in
 * use is never replaced.
 */

static ngx_int_t
ngx_http_zk_lock_map_open(ngx_http_zk_lock_map_t *map,
    ngx_http_zk_lock_map_conf_t *conf, size_t size,
    ngx_http_zk_lock_head_t *head, ngx_log_t *log)
{
    int          fd;
    ngx_err_t    err;
    const char  *why;

    fd = open((char *) conf->path.data,
              O_RDWR|O_CLOEXEC|O_NOFOLLOW|O_NONBLOCK);

    if (fd == -1) {
        err = ngx_errno;

        if (err != NGX_ENOENT) {
            ngx_log_error(NGX_LOG_WARN, log, err,
                          "zk_lock_state_path \"%V\" is refused, "
                          "a new file is made", &conf->path);
        }

        return NGX_DECLINED;
    }

    why = ngx_http_zk_lock_map_check(conf, fd, size, head);

    if (why == NULL) {
        return ngx_http_zk_lock_map_take(map, conf, fd, size, head, log);
    }

    if (flock(fd, LOCK_EX|LOCK_NB) == -1 && ngx_errno == NGX_EAGAIN) {
        ngx_log_error(NGX_LOG_EMERG, log, 0,
                      "zk_lock_state_path \"%V\" is in use, but %s: stop "
                      "who has it, or name another file", &conf->path, why);
        (void) close(fd);
        return NGX_ERROR;
    }

    ngx_log_error(NGX_LOG_WARN, log, 0,
                  "zk_lock_state_path \"%V\" is refused, "
                  "a new file is made: %s", &conf->path, why);

    (void) close(fd);

    return NGX_DECLINED;
}


/*
 * Locks and maps a file that is sound.  Who has it alone knows that all who
 * kept something are dead, whoever has their pids now.
 */

static ngx_int_t
ngx_http_zk_lock_map_take(ngx_http_zk_lock_map_t *map,
    ngx_http_zk_lock_map_conf_t *conf, int fd, size_t size,
    ngx_http_zk_lock_head_t *head, ngx_log_t *log)
{
    u_char      *p;
    ngx_uint_t   i, alone;

    alone = (flock(fd, LOCK_EX|LOCK_NB) == 0);

    p = mmap(NULL, size, PROT_READ|PROT_WRITE, MAP_SHARED, fd, 0);

    if (p == MAP_FAILED) {
        ngx_log_error(NGX_LOG_EMERG, log, ngx_errno,
                      "mmap() of zk_lock_state_path \"%V\" failed",
                      &conf->path);
        (void) close(fd);
        return NGX_ERROR;
    }

    map->own->file = fd;
    map->own->addr = p;
    map->own->size = size;

    (void) ngx_http_zk_lock_map_lay_out(map, p, size);

    if (!alone && map->head->pids != head->pids) {
        ngx_log_error(NGX_LOG_EMERG, log, 0,
                      "zk_lock_state_path \"%V\" is in use in another "
                      "container", &conf->path);
        return NGX_ERROR;
    }

    for (i = 0; alone && i < map->nslots; i++) {
        if (map->slots[i].keeper != NGX_HTTP_ZK_LOCK_FREE) {
            map->slots[i].keeper = NGX_HTTP_ZK_LOCK_ORPHAN;
        }
    }

    map->head->pids = head->pids;

    return ngx_http_zk_lock_map_share(fd);
}


/* Returns NULL, or what is wrong with a file. */

static const char *
ngx_http_zk_lock_map_check(ngx_http_zk_lock_map_conf_t *conf, int fd,
    size_t size, ngx_http_zk_lock_head_t *head)
{
    ssize_t                  n;
    struct stat              st;
    ngx_http_zk_lock_head_t  found;

    if (fstat(fd, &st) == -1) {
        return "fstat() failed";
    }

    if (!S_ISREG(st.st_mode)) {
        return "it is no plain file";
    }

    if (st.st_uid != ngx_http_zk_lock_map_user(conf)
        && st.st_uid != geteuid())
    {
        return "it belongs to another user";
    }

    if (st.st_mode & 077) {
        return "others than its user may open it";
    }

    n = pread(fd, &found, sizeof(ngx_http_zk_lock_head_t), 0);

    if (n != (ssize_t) sizeof(ngx_http_zk_lock_head_t)
        || ngx_memcmp(found.magic, head->magic, sizeof(head->magic)) != 0
        || found.crc != ngx_crc32_long((u_char *) &found,
                                       offsetof(ngx_http_zk_lock_head_t, crc)))
    {
        return "it is no state of locks, or torn";
    }

    if (ngx_memcmp(found.boot, head->boot, sizeof(head->boot)) != 0) {
        return "it is from before this machine was started";
    }

    if (ngx_memcmp(found.servers, head->servers, sizeof(head->servers)) != 0) {
        return "it is of other zk_lock_servers or zk_lock_auth";
    }

    if (found.crc != head->crc) {
        return "it is of another zk_lock_zone";
    }

    if (st.st_size != (off_t) size) {
        return "it is torn";
    }

    return NULL;
}


static ngx_int_t
ngx_http_zk_lock_map_create(ngx_http_zk_lock_map_t *map,
    ngx_http_zk_lock_map_conf_t *conf, size_t size,
    ngx_http_zk_lock_head_t *head, ngx_log_t *log)
{
    int         fd;
    u_char     *p;
    ngx_str_t   temp;

    temp.len = conf->path.len + NGX_INT64_LEN + 2;

    temp.data = ngx_alloc(temp.len, log);
    if (temp.data == NULL) {
        return NGX_ERROR;
    }

    (void) ngx_sprintf(temp.data, "%V.%P%Z", &conf->path, ngx_pid);

    (void) unlink((char *) temp.data);

    fd = open((char *) temp.data,
              O_RDWR|O_CREAT|O_EXCL|O_CLOEXEC|O_NOFOLLOW, 0600);

    if (fd == -1) {
        ngx_log_error(NGX_LOG_EMERG, log, ngx_errno,
                      "open() \"%s\" failed", temp.data);
        ngx_free(temp.data);
        return NGX_ERROR;
    }

    /* from here on the descriptor goes with the map */

    map->own->file = fd;

    if (ngx_http_zk_lock_map_write(conf, fd, size, head, log) != NGX_OK) {
        goto failed;
    }

    p = mmap(NULL, size, PROT_READ|PROT_WRITE, MAP_SHARED, fd, 0);

    if (p == MAP_FAILED) {
        ngx_log_error(NGX_LOG_EMERG, log, ngx_errno,
                      "mmap() of \"%s\" failed", temp.data);
        goto failed;
    }

    map->own->addr = p;
    map->own->size = size;

    if (ngx_http_zk_lock_map_share(fd) != NGX_OK
        || rename((char *) temp.data, (char *) conf->path.data) == -1)
    {
        ngx_log_error(NGX_LOG_EMERG, log, ngx_errno,
                      "\"%s\" cannot become \"%V\"", temp.data,
                      &conf->path);
        goto failed;
    }

    ngx_free(temp.data);

    return NGX_OK;

failed:

    (void) unlink((char *) temp.data);

    ngx_free(temp.data);

    return NGX_ERROR;
}


/* All of its room is taken now: a store into a hole could find a full disk. */

static ngx_int_t
ngx_http_zk_lock_map_write(ngx_http_zk_lock_map_conf_t *conf, int fd,
    size_t size, ngx_http_zk_lock_head_t *head, ngx_log_t *log)
{
    int  err;

    if (geteuid() == 0
        && fchown(fd, ngx_http_zk_lock_map_user(conf), (gid_t) -1) == -1)
    {
        ngx_log_error(NGX_LOG_EMERG, log, ngx_errno,
                      "fchown() of zk_lock_state_path \"%V\" failed",
                      &conf->path);
        return NGX_ERROR;
    }

    err = posix_fallocate(fd, 0, (off_t) size);

    if (err != 0) {
        ngx_log_error(NGX_LOG_EMERG, log, err,
                      "posix_fallocate() of zk_lock_state_path \"%V\" failed",
                      &conf->path);
        return NGX_ERROR;
    }

    if (pwrite(fd, head, sizeof(ngx_http_zk_lock_head_t), 0)
        != (ssize_t) sizeof(ngx_http_zk_lock_head_t))
    {
        ngx_log_error(NGX_LOG_EMERG, log, ngx_errno,
                      "pwrite() of zk_lock_state_path \"%V\" failed",
                      &conf->path);
        return NGX_ERROR;
    }

    return NGX_OK;
}


/* The user of the workers, who are not there yet. */

static ngx_uid_t
ngx_http_zk_lock_map_user(ngx_http_zk_lock_map_conf_t *conf)
{
    ngx_core_conf_t  *ccf;

    if (geteuid() != 0) {
        return geteuid();
    }

    ccf = (ngx_core_conf_t *) ngx_get_conf(conf->cycle->conf_ctx,
                                           ngx_core_module);
    return ccf->user;
}


/* Locks a file for as long as a process has it. */

static ngx_int_t
ngx_http_zk_lock_map_share(int fd)
{
    int  rc;

    do {
        rc = flock(fd, LOCK_SH);
    } while (rc == -1 && ngx_errno == NGX_EINTR);

    return (rc == 0) ? NGX_OK : NGX_ERROR;
}
