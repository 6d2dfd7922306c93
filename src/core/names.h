
/*
 * The names of the locks under a root that a claim holds or waits for, with the
 * holders if the caller asks for these.  No HTTP.
 */


#ifndef _ZKL_NAMES_H_INCLUDED_
#define _ZKL_NAMES_H_INCLUDED_


#include "core/call.h"


/* locks that are looked at at the same time */
#define ZKL_NAMES_LISTS               16

/* names that are looked at for a question; with an owner or a sort: */
#define ZKL_NAMES_MAX                 2000
#define ZKL_NAMES_SEARCH_MAX          10000

/* claims that are read for a question, and about so many are described */
#define ZKL_NAMES_READ_MAX            20000
#define ZKL_NAMES_DESCRIBED_MAX       4000

/*
 * Turns of a worker; a question takes one, for up to 2000 names, or eight if
 * the question reads claims or sorts, because it may need some megabytes.  More
 * questions than these wait for turns, and further questions are refused.
 */
#define ZKL_NAMES_TURNS               32
#define ZKL_NAMES_SEARCH              8
#define ZKL_NAMES_WAITING             128


typedef struct zkl_names_s  zkl_names_t;

/*
 * Tells the result, once, and never from inside the function that asked: OK,
 * BUSY, UNREACHABLE, DENIED or FAILED.  names is freed when the handler
 * returns.
 */
typedef void (*zkl_names_pt)(zkl_names_t *names, zkl_answer_e answer);


typedef enum {
    ZKL_NAMES_BY_NAME = 0,              /* the order of the bytes */
    ZKL_NAMES_BY_SINCE,                 /* the oldest holder first */
    ZKL_NAMES_BY_WAITING                /* the longest queue first */
} zkl_names_sort_e;


/* a question */

typedef struct {
    ngx_str_t                          root;    /* "/" or "/..." */
    ngx_str_t                          prefix;  /* of the full names, or "" */
    ngx_str_t                          after;   /* names behind this name, or
                                                   "" */
    ngx_str_t                          owner;   /* of a holder, if owned */
    ngx_uint_t                         owned;   /* only holders of owner */
    ngx_uint_t                         limit;   /* locks with claims */
    ngx_uint_t                         holders; /* to be described */
    zkl_names_sort_e                   sort;
    ngx_msec_t                         timeout; /* for the answer */
    zkl_names_pt                       handler;
    void                              *data;
} zkl_names_question_t;


typedef struct {
    ngx_str_t                          name;    /* of the znode */
    ngx_str_t                          full;    /* of the lock, as a holder
                                                   says; len 0: unknown */
    zkl_mode_t                         mode;    /* of the first claim */
    ngx_uint_t                         held;    /* claims that hold the lock */
    ngx_uint_t                         queued;  /* the other claims */
    time_t                             since;   /* of the oldest holder, with an
                                                   owner of the oldest of that
                                                   owner; 0: unknown */
    int64_t                            rank;    /* in the answer */
    zkl_info_t                        *infos;   /* holders, in order; or NULL */
    ngx_uint_t                         ninfos;
    ngx_msec_t                         looked;  /* when the claims were read */
    zkl_names_t                       *names;
    zkl_call_t                        *look;    /* under way; else NULL */
} zkl_named_t;


struct zkl_names_s {
    zkl_worker_t                      *worker;
    zkl_names_question_t               asked;   /* limit: locks that the answer
                                                   has room for */
    ngx_uint_t                         max;     /* names to look at */
    zkl_call_e                         type;    /* of a look */

    ngx_queue_t                        queue;   /* worker->searches, without a
                                                   turn */
    ngx_uint_t                         turns;   /* that the question has */

    zkl_op_t                          *op;      /* the list of the root, or
                                                   NULL */
    ngx_uint_t                         nlooks;  /* under way */
    ngx_event_t                        timer;
    ngx_msec_t                         until;   /* the caller's deadline */

    /* in the order of the bytes; the first nlooked names were looked at */
    zkl_named_t                       *named;
    ngx_uint_t                         nnamed;
    ngx_uint_t                         nlooked;

    /* the answer: locks of named with claims, in the order of sort */
    zkl_named_t                      **found;
    ngx_uint_t                         nfound;
    ngx_uint_t                         nread;   /* claims */
    ngx_uint_t                         ndescribed;  /* claims of found */

    unsigned                           judged:1;    /* what is found depends on
                                                       the holders */
    unsigned                           busy:1;      /* other questions have
                                                       all turns */
    unsigned                           more:1;  /* there are more names than
                                                   nnamed */
    unsigned                           partial:1;   /* a lock or a holder that
                                                       counts was not read */
};


/*
 * Looks at names in the order of the bytes, until limit locks with claims were
 * found, or there are no more names, or enough names were looked at; with a
 * sort, at all names but for the last reason.  All that question leads to is
 * copied.  Returns NULL if there is no memory.
 */
zkl_names_t *zkl_names(zkl_worker_t *worker, zkl_names_question_t *question);

/* The caller has left: frees data, the names. */
void zkl_names_leave(void *data);

/* The question that waits longest may have its turns by now. */
void zkl_names_wake(zkl_worker_t *worker);

/* Whether there may be more locks behind the last name that was looked at. */
#define zkl_names_more(names)                                                  \
    ((names)->more || (names)->nlooked < (names)->nnamed)


#endif /* _ZKL_NAMES_H_INCLUDED_ */
