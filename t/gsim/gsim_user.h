
/*
 * A user of the simulated gateways, for the files that have parts of his life:
 *
 *   gsim_user.c     who he is, his acquire, and whether he is served in time
 *   gsim_ask.c      what he asks with a token
 *   gsim_bound.c    what he holds by a connection
 *   gsim_several.c  several locks at once
 */


#ifndef _GSIM_USER_H_INCLUDED_
#define _GSIM_USER_H_INCLUDED_


#include "gsim.h"


/* what somebody may have to wait for beyond his time */
#define GSIM_SLACK          GSIM_S

/* within that time the end of a bound claim is told */
#define GSIM_TOLD           (20 * GSIM_S)

/* what was gone so long before the question is not told as released by it */
#define GSIM_LATE           (50 * GSIM_MS)


typedef enum {
    GSIM_IDLE = 0,
    GSIM_ACQUIRES,
    GSIM_POLLS,                         /* with a token, not held so far */
    GSIM_HOLDS,
    GSIM_RELEASES
} gsim_user_e;


typedef struct gsim_began_s  gsim_began_t;


struct gsim_user_s {
    int                          index;
    char                         name[24];
    gsim_user_e                  state;
    uint64_t                     tag;           /* of what comes next */
    gsim_process_t              *process;       /* that serves him */
    zkl_claim_t                 *claim;
    zkl_call_t                  *call;
    zkl_call_e                   type;

    int                          lock;
    int                          home;          /* where he acquired */
    zkl_kind_t                   kind;
    zkl_token_t                  token;
    uint8_t                      key[ZKL_KEY];
    int64_t                      ttl;           /* milliseconds */
    int64_t                      named;         /* in a renewal; 0: none */
    int64_t                      least;         /* ttl of all */
    int64_t                      wait;
    int64_t                      deadline;      /* of the whole */
    int64_t                      acquired;      /* when that began */
    int64_t                      asked;
    int64_t                      since;         /* when, to who serves him */
    int64_t                      must;          /* be answered by then */
    int64_t                      first;         /* in line since; 0: is not */
    int                          tries;
    gsim_hold_t                 *hold;
    zkl_claim_t                 *bound;         /* to his connection; or NULL */
    gsim_process_t              *binder;        /* that has it */
    int64_t                      ended;         /* when it was not valid */

    gsim_user_t                 *leader;        /* whose turn is waited for */

    int                          locks[GSIM_LOCKS];     /* several at once */
    int                          nparts;        /* of them; 0: one lock */
    int                          at;            /* which he waits for */
    zkl_claim_t                 *parts[GSIM_LOCKS];
    zkl_token_t                  tokens[GSIM_LOCKS];
    gsim_began_t                *began;         /* their leases begin now */

    unsigned                     dropped:1;     /* one of them is lost */
    unsigned                     by_hand:1;     /* one of them was deleted */
    unsigned                     works:1;       /* they go on in a turn */
    unsigned                     keyed:1;
    unsigned                     async:1;
    unsigned                     forgets:1;     /* to release */
    unsigned                     durable:1;     /* told of what is, only */
    unsigned                     shares:1;      /* his key with others */
    unsigned                     calls:1;       /* just now */
    unsigned                     binds:1;
    unsigned                     leased:1;      /* what he binds */
    unsigned                     came:1;        /* he left, and repeats */
    unsigned                     placed:1;      /* since then he was told that
                                                   his claim waits */
    unsigned                     late:1;        /* he releases what he does not
                                                   hold any more */
    unsigned                     sure:1;        /* nobody but him releases it,
                                                   for the first time */
    unsigned                     cuts:1;        /* its lease, by a shorter
                                                   renewal */
    unsigned                     untold:1;      /* whether what he asked, to
                                                   hold it once more or less,
                                                   was done */
};


extern ngx_msec_t  gsim_grace;
extern ngx_msec_t  gsim_timeout;        /* for ZooKeeper */
extern ngx_uint_t  gsim_max_queue;
extern int         gsim_mixes;          /* one lock is used in several ways */


/* He acts again in so many microseconds. */
void gsim_user_next(gsim_user_t *u, int64_t us);
void gsim_user_idle(gsim_user_t *u);
/* He has been told that he holds it: what then. */
void gsim_user_think(gsim_user_t *u);
/* The user acts again after so long, or just before the lease ends. */
void gsim_user_next_held(gsim_user_t *u, int64_t us);
/* Does that in a turn of u->process; 0: it cannot be now. */
int gsim_user_serve(gsim_user_t *u, void (*act)(void *data));
/* An acquire or a call got no answer of ZooKeeper in its time. */
void gsim_user_unreachable(gsim_user_t *u);
/* The moment of the latest answer to an acquire with that wait. */
int64_t gsim_user_must(int64_t wait);
void gsim_user_label(gsim_user_t *u, zkl_claim_data_t *label);
/* An acquire of u->lock; what it points to has to stay. */
void gsim_user_fill(gsim_user_t *u, zkl_acquire_t *acquire,
    const zkl_claim_data_t *label);
/* Somebody else who does nothing; or NULL. */
gsim_user_t *gsim_user_another(gsim_user_t *u);
/* How many were ahead of his claim, whose znode that is, when it was made. */
unsigned gsim_user_ahead(gsim_user_t *u, gsim_node_t *own);
/* The path of the claim that his token is of; path has room for GSIM_PATH. */
void gsim_user_path(gsim_user_t *u, char *path);
/* The znode of that claim, if it was ever made. */
gsim_node_t *gsim_user_node(gsim_user_t *u);

void gsim_user_ask(gsim_user_t *u, zkl_call_e type);

/* He wants it bound to his connection. */
void gsim_user_bind(gsim_user_t *u, zkl_acquire_t *acquire,
    zkl_claim_data_t *label);
void gsim_user_bound(gsim_user_t *u, zkl_claim_t *claim);
void gsim_user_event_told(void *data, zkl_claim_t *claim, zkl_event_e event,
    const char *reason);
/* He is done with it: 0, if he holds nothing by a connection. */
int gsim_user_unbind(gsim_user_t *u);
void gsim_user_cut_off(gsim_user_t *u);
void gsim_user_check_bound(gsim_user_t *u);

/* Which ones; 0: there are no two that he could have. */
int gsim_several_choose(gsim_user_t *u);
/* In a turn of u->process. */
void gsim_several_acquire(void *data);
void gsim_several_leave(void *data);
/* It died in the midst of that. */
void gsim_several_died(gsim_user_t *u);


#endif /* _GSIM_USER_H_INCLUDED_ */
