
/*
 * A user of the simulated gateways, for the files that hold parts of a user:
 *
 *   gsim_user.c     the user's acquires, and whether the user is served in time
 *   gsim_ask.c      the user's calls with a token
 *   gsim_bound.c    locks that the user holds by a connection
 *   gsim_several.c  several locks at once
 *   gsim_crowd.c    others that hold once more what the user holds
 */


#ifndef _GSIM_USER_H_INCLUDED_
#define _GSIM_USER_H_INCLUDED_


#include "gsim.h"


/* how long after the user's deadline an answer may come */
#define GSIM_SLACK          GSIM_S

/* the end of a bound claim is told within that time */
#define GSIM_TOLD           (20 * GSIM_S)

/* a release is not told OK if the claim was gone for that long before */
#define GSIM_LATE           (50 * GSIM_MS)


typedef enum {
    GSIM_IDLE = 0,
    GSIM_ACQUIRES,
    GSIM_POLLS,                         /* with a token, not held so far */
    GSIM_HOLDS,
    GSIM_RELEASES
} gsim_user_e;


struct gsim_user_s {
    int                          index;
    char                         name[24];
    gsim_user_e                  state;
    uint64_t                     tag;           /* of the event to come */
    gsim_process_t              *process;       /* that serves the user */
    zkl_claim_t                 *claim;
    zkl_call_t                  *call;
    zkl_call_e                   type;

    int                          lock;
    int                          home;          /* gateway of the acquire */
    zkl_mode_t                   mode;
    zkl_token_t                  token;
    uint8_t                      key[ZKL_KEY];
    int64_t                      ttl;           /* milliseconds */
    int64_t                      named;         /* ttl of a renewal; 0: none */
    int64_t                      least;         /* the least ttl of all */
    int64_t                      wait;
    int64_t                      deadline;      /* of the whole wait */
    int64_t                      acquired;      /* when the acquire began */
    int64_t                      asked;
    int64_t                      since;         /* when the worker was asked */
    int64_t                      must;          /* latest time of an answer */
    int64_t                      first;         /* since when first; or 0 */
    int                          tries;
    gsim_hold_t                 *hold;
    int                          mine;          /* of the times of hold */
    int                          low;           /* bounds since the call */
    int                          high;
    zkl_claim_t                 *bound;         /* to the connection, or NULL */
    gsim_process_t              *binder;        /* that serves bound */
    int64_t                      alive;         /* when bound last was valid */

    gsim_user_t                 *leader;        /* runs in the leader's turn */

    gsim_node_t                 *ended;         /* of the claim, if another user
                                                   of the key cancelled the
                                                   claim; else NULL */

    int                          locks[GSIM_LOCKS];     /* several at once */
    int                          nparts;        /* of locks; 0: a single lock */
    zkl_group_t                  group;
    zkl_group_part_t             parts[GSIM_LOCKS];
    zkl_token_t                  tokens[GSIM_LOCKS];

    gsim_node_t                 *by_hand;       /* of a claim of this acquire,
                                                   that was deleted by hand;
                                                   else NULL */

    unsigned                     works:1;       /* a turn works on the user */
    unsigned                     keyed:1;
    unsigned                     async:1;
    unsigned                     forgets:1;     /* forgets to release */
    unsigned                     durable:1;     /* told when durable, only */
    unsigned                     shares:1;      /* the key, with other users */
    unsigned                     calls:1;       /* in zkl_call_start() */
    unsigned                     binds:1;
    unsigned                     leased:1;      /* what is bound has a lease */
    unsigned                     came:1;        /* left, and repeats */
    unsigned                     placed:1;      /* was told since then that
                                                   the claim waits */
    unsigned                     late:1;        /* releases what is not held
                                                   any more */
    unsigned                     sure:1;        /* no other release can have
                                                   come first */
    unsigned                     cuts:1;        /* a shorter renewal cuts the
                                                   lease */
    unsigned                     met:1;         /* another user has the token */
    unsigned                     meets:1;       /* calls beside that user */
    unsigned                     hangs:1;       /* hangs up next */
    unsigned                     untold:1;      /* not told whether a HOLD or
                                                   a RELEASE was done */
};


extern ngx_msec_t  gsim_grace;
extern ngx_msec_t  gsim_timeout;        /* for ZooKeeper */
extern ngx_uint_t  gsim_max_queue;
extern ngx_uint_t  gsim_max_claims;     /* of a quota */
extern int         gsim_mixes;          /* a lock is used in several ways */


/* The user acts again in us microseconds. */
void gsim_user_next(gsim_user_t *u, int64_t us);
void gsim_user_idle(gsim_user_t *u);
/* The user was told to hold the lock: decides what comes next. */
void gsim_user_think(gsim_user_t *u);
/* The user acts again after so long, or just before the lease ends. */
void gsim_user_next_held(gsim_user_t *u, int64_t us);
/* Calls act() in a turn of u->process; 0: not possible now. */
int gsim_user_serve(gsim_user_t *u, void (*act)(void *data));
/* An acquire or a call was answered UNREACHABLE. */
void gsim_user_unreachable(gsim_user_t *u);
/* The time by which an acquire with that wait must be answered. */
int64_t gsim_user_must(int64_t wait);
void gsim_user_cdata(gsim_user_t *u, zkl_claim_data_t *cdata);
/* Fills in an acquire of u->lock; cdata has to stay. */
void gsim_user_fill(gsim_user_t *u, zkl_acquire_t *acquire,
    const zkl_claim_data_t *cdata);
/* Another user that is idle, or NULL. */
gsim_user_t *gsim_user_another(gsim_user_t *u);
/* How many claims were ahead of own, u's znode, when own was made. */
unsigned gsim_user_ahead(gsim_user_t *u, gsim_node_t *own);
/* Whether a child made by name was there, beside node, later than a time. */
int gsim_user_planted(gsim_node_t *node, int64_t since);
/* The path of the claim of u->token; path has room for GSIM_PATH. */
void gsim_user_path(gsim_user_t *u, char *path);
/* The znode of that path, deleted or not; NULL: never made. */
gsim_node_t *gsim_user_node(gsim_user_t *u);

void gsim_user_ask(gsim_user_t *u, zkl_call_e type);
/* The claim of u->token, which waited with that znode, was cancelled by u. */
void gsim_user_cancelled(gsim_user_t *u, gsim_node_t *node);

/* Binds the acquire to the user's connection. */
void gsim_user_bind(gsim_user_t *u, zkl_acquire_t *acquire,
    zkl_claim_data_t *cdata);
void gsim_user_bound(gsim_user_t *u, zkl_claim_t *claim);
void gsim_user_event_told(void *data, zkl_claim_t *claim, zkl_event_e event,
    const char *reason);
/* The user hangs up; 0: the user holds no lock by a connection. */
int gsim_user_unbind(gsim_user_t *u);
void gsim_user_cut_off(gsim_user_t *u);
void gsim_user_check_bound(gsim_user_t *u);

/* The bounds of the times of a hold have changed. */
void gsim_user_counts(gsim_hold_t *hold);
/* Adds to the bounds. */
void gsim_crowd_counts(gsim_hold_t *hold, int times, int most);
/* Lets others hold once more what the user holds. */
void gsim_crowd_join(gsim_user_t *u);
void gsim_crowd_reset(void);
int gsim_crowd_busy(void);
void gsim_crowd_gone(gsim_process_t *p);
int gsim_crowd_waits(gsim_process_t *p);

/* Chooses the locks; 0: there are no two locks to choose. */
int gsim_several_choose(gsim_user_t *u);
/* In a turn of u->process. */
void gsim_several_acquire(void *data);
void gsim_several_leave(void *data);
/* Sets u->claim and u->lock to those that the group waits for. */
void gsim_several_sync(gsim_user_t *u);
/* Deletes the znode of the user's claim, if that queues again; else 0. */
int gsim_several_by_hand_now(gsim_user_t *u);


#endif /* _GSIM_USER_H_INCLUDED_ */
