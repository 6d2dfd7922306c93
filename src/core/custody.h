
/*
 * Custody: which session counts a durable lease.
 *
 * A lease outlives the session that made it.  The session that owns a gate
 * counts all leases that are entered below the gate:
 *
 *   /zk_lock_gates/G               ephemeral: of the session that counts
 *   /zk_lock_gates/G.leases        persistent; its data's version is the number
 *                                  of takeovers of G
 *   /zk_lock_gates/G.leases/E      an entry: a durable claim
 *
 * The transaction that makes a lease durable makes the entry as well, below the
 * gate that the session was given at its start (core/replace.c).  When G is
 * gone and G.leases is there, a worker makes G again, and counts: the znode G
 * is a lock that one session gets, and no claim is written.
 */


#ifndef _ZKL_CUSTODY_H_INCLUDED_
#define _ZKL_CUSTODY_H_INCLUDED_


#include "core/claim.h"


/* digits of an entry's name: the last group of digits of the claim's id */
#define ZKL_ENTRY_LEN                 12

#define ZKL_LEASES                    ".leases"
#define ZKL_LEASES_LEN                (ZKL_GATE_LEN + sizeof(ZKL_LEASES) - 1)
#define ZKL_LEASES_PATH               (sizeof(ZKL_GATES) + ZKL_LEASES_LEN)


/* from NEW on a list shows the gate; from LIST on the session counts */

typedef enum {
    ZKL_GATE_GONE = 0,
    ZKL_GATE_DUE,
    ZKL_GATE_LEFT,
    ZKL_GATE_NEW,
    ZKL_GATE_LOOK,
    ZKL_GATE_COUNT,
    ZKL_GATE_EMPTY,
    ZKL_GATE_LIST,
    ZKL_GATE_READ,
    ZKL_GATE_OWNED
} zkl_gate_state_e;


struct zkl_gate_s {
    ngx_queue_t                    queue;       /* worker->gates */
    zkl_worker_t                  *worker;
    zkl_gate_state_e               state;
    zkl_op_t                      *op;
    ngx_queue_t                    claims;
    uint32_t                       term;        /* version of the directory */
    int64_t                        former;      /* the session of this worker
                                                   that had the gate; or 0 */
    int64_t                        seen;        /* the session that had the gate
                                                   in the last LOOK; or 0 */
    ngx_msec_t                     due;         /* when the operation of the
                                                   state may be sent */
    ngx_uint_t                     failures;    /* in a row */

    ngx_str_t                     *entries;
    ngx_uint_t                     nentries;
    ngx_uint_t                     next;        /* the first entry not read */
    ngx_uint_t                     pending;

    unsigned                       failed:1;    /* [READ] an entry could not be
                                                   read, or has no room */
    unsigned                       warned:1;    /* an entry was no lease's */

    ngx_str_t                      name;        /* in path */
    ngx_str_t                      dir;
    u_char                         path[ZKL_LEASES_PATH];
};


/*
 * Whether a lease can become durable: *gate is the session's then.  NGX_AGAIN:
 * the gate or its directory is being made, and zkl_claim_gated() is called for
 * all claims afterwards; NGX_DECLINED: ZooKeeper refused, which is tried again
 * later.
 */
ngx_int_t zkl_custody_ready(zkl_worker_t *worker, zkl_gate_t **gate);

/* Whether this worker's session owns the gate, and counts its leases. */
ngx_uint_t zkl_custody_counts(zkl_gate_t *gate);

/*
 * The lease of the claim is, or is about to be, entered below the gate.  A
 * claim that is done leaves; if this session counts, the entry is removed.
 */
void zkl_custody_join(zkl_gate_t *gate, zkl_claim_t *claim);
void zkl_custody_leave(zkl_claim_t *claim);

/*
 * The same below the gate with that name, which the claim's data say.  The
 * worker takes the gate over without a wait as soon as no session has the gate;
 * a former session of this worker and the sessions that the worker adopts do
 * not count.  If another session has the gate, zkl_claim_forsake() is called,
 * later, never from inside.  NGX_ERROR: no memory.
 */
ngx_int_t zkl_custody_claim(zkl_claim_t *claim, const u_char *name);

/*
 * The operation that makes the entry of a claim below claim->gate, to be sent
 * along with the transaction that makes the claim durable; NULL: no memory.
 */
zkl_op_t *zkl_custody_entry(zkl_claim_t *claim, ngx_str_t *cdata);

/* An owned gate's entries, or directory, may be gone: are listed again. */
void zkl_custody_unsure(zkl_gate_t *gate);


/* for the worker */

/* Frees all; no claim is told. */
void zkl_custody_stop(zkl_worker_t *worker);
/* The connection is there: looks at the gates, and at the entries. */
void zkl_custody_connected(zkl_worker_t *worker);
/* The children of path have changed; path may be that of the gates. */
void zkl_custody_listed(zkl_worker_t *worker, ngx_str_t *path);
/* The session with that id is over; before the claims are told. */
void zkl_custody_lost(zkl_worker_t *worker, int64_t session);
/* Once a second. */
void zkl_custody_sweep(zkl_worker_t *worker);


#endif /* _ZKL_CUSTODY_H_INCLUDED_ */
