
/*
 * The names of the locks under a root that a claim holds or waits for.  No
 * HTTP.
 */


#ifndef _ZKL_NAMES_H_INCLUDED_
#define _ZKL_NAMES_H_INCLUDED_


#include "core/call.h"


/* locks that are listed at the same time */
#define ZKL_NAMES_LISTS               16

/* names that are looked at for a question */
#define ZKL_NAMES_MAX                 2000


typedef struct zkl_names_s  zkl_names_t;

/*
 * Tells the result, once, and never from inside the function that asked: OK,
 * UNREACHABLE, DENIED or FAILED.  names is freed when the handler returns.
 */
typedef void (*zkl_names_pt)(zkl_names_t *names, zkl_answer_e answer);


typedef struct {
    ngx_str_t                          name;
    zkl_kind_t                         kind;    /* of the first claim */
    ngx_uint_t                         held;    /* claims that hold the lock */
    ngx_uint_t                         queued;  /* the other claims; no claims:
                                                   both are 0 */
} zkl_named_t;


/* a list under way */

typedef struct {
    zkl_names_t                       *names;
    zkl_named_t                       *named;
    zkl_op_t                          *op;      /* NULL: none */
} zkl_names_list_t;


struct zkl_names_s {
    zkl_worker_t                      *worker;
    ngx_str_t                          root;
    ngx_str_t                          prefix;
    ngx_str_t                          after;
    ngx_uint_t                         limit;

    zkl_names_pt                       handler;
    void                              *data;

    zkl_op_t                          *op;      /* the list of the root, or
                                                   NULL */
    zkl_names_list_t                   lists[ZKL_NAMES_LISTS];
    ngx_uint_t                         nlists;  /* under way */
    ngx_event_t                        timer;
    ngx_msec_t                         until;   /* the caller's deadline */

    /* in the order of the bytes; the first nlooked names were looked at */
    zkl_named_t                       *named;
    ngx_uint_t                         nnamed;
    ngx_uint_t                         nlooked;
    ngx_uint_t                         nfound;  /* that have claims */

    unsigned                           begun:1;
    unsigned                           more:1;  /* there are more names than
                                                   nnamed */
};


/* a question */

typedef struct {
    ngx_str_t                         *root;    /* "/" or "/..." */
    ngx_str_t                         *prefix;  /* of the names, or "" */
    ngx_str_t                         *after;   /* names behind this name, or
                                                   "" */
    ngx_uint_t                         limit;   /* locks with claims */
    ngx_msec_t                         timeout; /* for the answer */
    zkl_names_pt                       handler;
    void                              *data;
} zkl_names_question_t;


/*
 * Looks at names in the order of the bytes, until limit locks with claims were
 * found, or there are no more names, or enough names were looked at.  All that
 * question leads to is copied.  Returns NULL if there is no memory.
 */
zkl_names_t *zkl_names(zkl_worker_t *worker, zkl_names_question_t *question);

/* The caller has left: frees names. */
void zkl_names_leave(zkl_names_t *names);

/* Whether there may be more locks behind the last name that was looked at. */
#define zkl_names_more(names)                                                  \
    ((names)->more || (names)->nlooked < (names)->nnamed)


#endif /* _ZKL_NAMES_H_INCLUDED_ */
