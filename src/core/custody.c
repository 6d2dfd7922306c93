
/*
 * Custody: how a worker gets the gates whose leases no session counts, and
 * finds the leases there.  core/custody.h says what gates and entries are.
 *
 * A worker has a list of gates: the gate that the session made at its start,
 * further gates that the session owns, and gates that the worker is about to
 * take.
 *
 *           sends                   the answer leads to
 *   -----   ---------------------   -------------------------------------------
 *   NEW     create of the           OWNED, if no lease is entered so far; LIST,
 *           directory               or COUNT for a gate that was another
 *                                   session's
 *   DUE     create of the gate,     COUNT; or LOOK, if a session has the gate
 *           when the time comes
 *   LOOK    read of the gate        COUNT, if the session is this one; LOOK,
 *                                   later, if it is a former or an adopted one,
 *                                   or another one that was not seen before;
 *                                   DUE, if the gate is gone; else the claims
 *                                   are forsaken
 *   COUNT   set of the directory    LIST; or, if there is none, NEW, or LEFT if
 *                                   there is no claim and the gate is not the
 *                                   home gate
 *   LIST    list of the entries     READ; or NEW or LEFT, as in COUNT; or LOOK,
 *                                   if another session has counted, or a client
 *                                   has written to the directory
 *   READ    reads of the entries    OWNED; EMPTY, if there is nothing; or LIST,
 *           that no claim has, and  later, if a read failed
 *           of their znodes
 *   OWNED   -                       LIST, when the last claim has left, with
 *                                   the next connection, or if the directory
 *                                   may be gone; or LIST, later, if an entry
 *                                   was not written
 *   EMPTY   delete of the           LEFT; or LIST, if there are entries
 *           directory
 *   LEFT    delete of the gate      freed
 *
 * From LIST on the session counts.  The end of the session leads all gates to
 * DUE, the home gate too, because the next session makes another one.
 *
 * All workers of all gateways see at the same moment that a gate is gone.  So a
 * worker waits first, because a worker that has the records of the leases does
 * not: the more gates there are before the worker's own, the longer is the
 * wait, and mostly a single worker sends the create.
 *
 * The takeover sets the directory, so the version of its data counts takeovers:
 * a claim keeps the deadline in the record if no other session has counted the
 * lease meanwhile, and else has the whole ttl.
 *
 * A session that takes a gate and finds no entry deletes the gate again.  If a
 * client has removed the entries, only the worker whose claims they were knows
 * of the leases.  So the claims are forsaken when another session is seen to
 * have the gate for the second time.
 *
 * A claim that ends has the entry deleted, if this session counts.  Such a
 * delete may be lost, so the entries are listed with each connection, and after
 * a delete that libzookeeper has refused; and those that no claim has are read.
 * An entry whose claim is gone is deleted.
 *
 * All code runs on the event loop.  A gate's `op` is NULL unless the operation
 * of its state is under way; `pending` counts further reads, whose handlers
 * need the gate, so a gate that is GONE stays until `pending` is 0.  `entries`
 * is NULL but in READ.
 */


#include "core/custody.h"
#include "core/adopt.h"
#include "core/node.h"


/* time for a worker that has the records to take the gate, ms */
#define ZKL_CUSTODY_FIRST             500

/* how much longer for each gate before the own gate; and at most */
#define ZKL_CUSTODY_RANK              250
#define ZKL_CUSTODY_LAST              5000

/* how soon a gate that another session has is read again, ms */
#define ZKL_CUSTODY_BEHIND            1000

/* how soon what was refused is tried again; twice that the next time */
#define ZKL_CUSTODY_AGAIN             5000
#define ZKL_CUSTODY_RARELY            300000

/* with so many reads of entries under way the next is not read yet */
#define ZKL_CUSTODY_READS             64

#define ZKL_LEASES                    ".leases"
#define ZKL_LEASES_LEN                (ZKL_GATE_LEN + sizeof(ZKL_LEASES) - 1)
#define ZKL_LEASES_PATH               (sizeof(ZKL_GATES) + ZKL_LEASES_LEN)


typedef enum {
    ZKL_GATE_NEW = 0,
    ZKL_GATE_DUE,
    ZKL_GATE_LOOK,
    ZKL_GATE_COUNT,
    ZKL_GATE_LIST,
    ZKL_GATE_READ,
    ZKL_GATE_OWNED,
    ZKL_GATE_EMPTY,
    ZKL_GATE_LEFT,
    ZKL_GATE_GONE
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


/* what a state sends: to the gate, or to the directory */

typedef struct {
    zkl_op_e                       type;
    ngx_uint_t                     dir;
} zkl_gate_op_t;


/* what an entry says */

typedef struct {
    ngx_str_t                      path;        /* of the lock */
    ngx_str_t                      cdata;
    zkl_child_t                    child;
} zkl_lease_t;


static zkl_gate_t *zkl_gate_find(zkl_worker_t *worker, const u_char *name);
static zkl_gate_t *zkl_gate_new(zkl_worker_t *worker, const u_char *name,
    zkl_gate_state_e state);
static void zkl_gate_free(zkl_gate_t *gate);
static ngx_uint_t zkl_gate_home(zkl_gate_t *gate);
static ngx_uint_t zkl_gate_used(zkl_gate_t *gate);
static void zkl_gate_entry(const zkl_id_t *id, u_char *buf);
static void zkl_gate_state(zkl_gate_t *gate, zkl_gate_state_e state);
static void zkl_gate_go(zkl_gate_t *gate);
static void zkl_gate_handler(zkl_op_t *op);
static void zkl_gate_tell(zkl_gate_t *gate, void (*tell)(zkl_claim_t *claim));
static void zkl_gate_anew(zkl_claim_t *claim);
static void zkl_gate_again(zkl_gate_t *gate, zkl_gate_state_e state);
static void zkl_gate_doubt(zkl_gate_t *gate);
static void zkl_gate_listed(zkl_gate_t *gate, zkl_op_t *op);
static int ngx_libc_cdecl zkl_gate_compare(const void *one, const void *two);
static void zkl_gate_enter(zkl_gate_t *gate, zkl_claim_t *claim);
static void zkl_gate_read(zkl_gate_t *gate);
static ngx_int_t zkl_gate_get(zkl_gate_t *gate, ngx_str_t *dir, ngx_str_t *name,
    ngx_str_t *text);
static void zkl_gate_get_handler(zkl_op_t *op);
static ngx_int_t zkl_gate_entry_read(zkl_gate_t *gate, zkl_op_t *op,
    u_char *entry);
static ngx_int_t zkl_gate_text_read(ngx_str_t *text, zkl_lease_t *lease);
static ngx_int_t zkl_gate_claim_read(zkl_gate_t *gate, zkl_op_t *op,
    u_char *entry);
static void zkl_gate_remove(zkl_gate_t *gate, u_char *entry);
static void zkl_gate_written_handler(zkl_op_t *op);
static void zkl_gate_relist(zkl_gate_t *gate);
static void zkl_custody_look(zkl_worker_t *worker);
static void zkl_custody_gates_handler(zkl_op_t *op);
static void zkl_custody_found(zkl_worker_t *worker, ngx_str_t *names,
    ngx_uint_t n);
static ngx_uint_t zkl_custody_lists(ngx_str_t *names, ngx_uint_t n,
    const u_char *name, size_t len);
static int ngx_libc_cdecl zkl_custody_compare(const void *one,
    const void *two);


void
zkl_custody_stop(zkl_worker_t *worker)
{
    ngx_queue_t  *q;
    zkl_gate_t   *gate;

    if (worker->listing != NULL) {
        worker->listing->handler = NULL;
    }

    while (!ngx_queue_empty(&worker->gates)) {
        q = ngx_queue_head(&worker->gates);
        gate = ngx_queue_data(q, zkl_gate_t, queue);

        gate->pending = 0;
        zkl_gate_free(gate);
    }
}


static zkl_gate_t *
zkl_gate_find(zkl_worker_t *worker, const u_char *name)
{
    ngx_queue_t  *q;
    zkl_gate_t   *gate;

    for (q = ngx_queue_head(&worker->gates);
         q != ngx_queue_sentinel(&worker->gates);
         q = ngx_queue_next(q))
    {
        gate = ngx_queue_data(q, zkl_gate_t, queue);

        if (gate->state != ZKL_GATE_GONE
            && ngx_memcmp(gate->name.data, name, ZKL_GATE_LEN) == 0)
        {
            return gate;
        }
    }

    return NULL;
}


static zkl_gate_t *
zkl_gate_new(zkl_worker_t *worker, const u_char *name, zkl_gate_state_e state)
{
    u_char      *p;
    zkl_gate_t  *gate;

    gate = ngx_calloc(sizeof(zkl_gate_t), worker->log);
    if (gate == NULL) {
        return NULL;
    }

    gate->worker = worker;
    gate->state = state;
    gate->due = ngx_current_msec;

    p = ngx_cpymem(gate->path, zkl_gates.data, zkl_gates.len);
    *p++ = '/';

    gate->name.data = p;
    gate->name.len = ZKL_GATE_LEN;

    p = ngx_cpymem(p, name, ZKL_GATE_LEN);
    p = ngx_cpymem(p, ZKL_LEASES, sizeof(ZKL_LEASES) - 1);

    gate->dir.data = gate->path;
    gate->dir.len = p - gate->path;

    ngx_queue_init(&gate->claims);
    ngx_queue_insert_tail(&worker->gates, &gate->queue);

    return gate;
}


/* No claim has the gate.  The gate stays, GONE, while reads are pending. */

static void
zkl_gate_free(zkl_gate_t *gate)
{
    zkl_gate_state(gate, ZKL_GATE_GONE);

    if (gate->pending != 0) {
        return;
    }

    ngx_queue_remove(&gate->queue);
    ngx_free(gate);
}


/* Whether the session has made the gate at its start. */

static ngx_uint_t
zkl_gate_home(zkl_gate_t *gate)
{
    ngx_str_t  name;

    return zkl_session_gated(gate->worker->session, &name) == NGX_OK
           && ngx_memcmp(gate->name.data, name.data, ZKL_GATE_LEN) == 0;
}


/* Whether the gate is needed, also without an entry. */

static ngx_uint_t
zkl_gate_used(zkl_gate_t *gate)
{
    return zkl_gate_home(gate) || !ngx_queue_empty(&gate->claims);
}


const u_char *
zkl_custody_name(zkl_gate_t *gate)
{
    return gate->name.data;
}


ngx_uint_t
zkl_custody_counts(zkl_gate_t *gate)
{
    return gate->state >= ZKL_GATE_LIST && gate->state <= ZKL_GATE_OWNED;
}


uint32_t
zkl_custody_term(zkl_gate_t *gate)
{
    return gate->term;
}


/*
 * The name of a claim's entry, ZKL_ENTRY_LEN bytes.  The record's number makes
 * the names of a gate's leases differ.
 */

static void
zkl_gate_entry(const zkl_id_t *id, u_char *buf)
{
    (void) ngx_sprintf(buf, "%02xd%02xd%08xD",
                       (int) id->random[ZKL_RANDOM_LEN - 2],
                       (int) id->random[ZKL_RANDOM_LEN - 1], id->record);
}


ngx_int_t
zkl_custody_ready(zkl_worker_t *worker, zkl_gate_t **gate)
{
    ngx_int_t    rc;
    ngx_str_t    name;
    zkl_gate_t  *home;

    rc = zkl_session_gated(worker->session, &name);
    if (rc != NGX_OK) {
        return rc;
    }

    home = zkl_gate_find(worker, name.data);

    if (home == NULL) {
        home = zkl_gate_new(worker, name.data, ZKL_GATE_NEW);
        if (home == NULL) {
            return NGX_AGAIN;
        }
    }

    if (zkl_custody_counts(home)) {
        *gate = home;
        return NGX_OK;
    }

    zkl_gate_go(home);

    return home->failures ? NGX_DECLINED : NGX_AGAIN;
}


void
zkl_custody_join(zkl_gate_t *gate, zkl_claim_t *claim)
{
    claim->gate = gate;
    ngx_queue_insert_tail(&gate->claims, &claim->custody);
}


void
zkl_custody_leave(zkl_claim_t *claim)
{
    u_char       entry[ZKL_ENTRY_LEN];
    zkl_id_t     id;
    zkl_gate_t  *gate;

    gate = claim->gate;

    if (gate == NULL) {
        return;
    }

    claim->gate = NULL;
    ngx_queue_remove(&claim->custody);

    if (!zkl_custody_counts(gate) || gate->worker->session == NULL) {
        return;
    }

    /* of a claim that is not durable: the answer may have been lost */

    id = zkl_claim_id(claim);
    zkl_gate_entry(&id, entry);

    zkl_gate_remove(gate, entry);

    if (!zkl_gate_used(gate)) {

        /* no lease is left there, as a list has to show */

        zkl_custody_unsure(gate);
    }
}


ngx_int_t
zkl_custody_claim(zkl_claim_t *claim, const u_char *name)
{
    zkl_gate_t    *gate;
    zkl_worker_t  *worker;

    worker = claim->lock->worker;

    gate = zkl_gate_find(worker, name);

    if (gate == NULL) {
        gate = zkl_gate_new(worker, name, ZKL_GATE_LOOK);
        if (gate == NULL) {
            return NGX_ERROR;
        }

    } else if (gate->state == ZKL_GATE_EMPTY || gate->state == ZKL_GATE_LEFT) {

        /* the delete is under way, and the claim has an entry: begins anew */

        zkl_gate_state(gate, ZKL_GATE_LOOK);

    } else if (gate->state == ZKL_GATE_DUE) {
        gate->due = ngx_current_msec;
    }

    zkl_custody_join(gate, claim);
    zkl_gate_go(gate);

    return NGX_OK;
}


zkl_op_t *
zkl_custody_entry(zkl_claim_t *claim, ngx_str_t *cdata)
{
    u_char     *p;
    u_char      leaf[ZKL_ENTRY_LEN];
    u_char      text[ZKL_PATH_MAX + 1 + ZKL_CLAIM_MAX + 1
                     + ZKL_CLAIM_DATA_MAX];
    zkl_id_t    id;
    ngx_str_t   entry, value, *path;

    path = &claim->lock->sn.str;
    id = zkl_claim_id(claim);

    zkl_gate_entry(&id, leaf);
    entry.data = leaf;
    entry.len = ZKL_ENTRY_LEN;

    p = ngx_cpymem(text, path->data, path->len);
    *p++ = LF;
    p += zkl_name_claim_write((char *) p, &id, claim->named_mode,
                              claim->entry.seq);
    *p++ = LF;
    p = ngx_cpymem(p, cdata->data, cdata->len);

    value.data = text;
    value.len = p - text;

    return zkl_op_new(claim->gate->worker->session, ZKL_OP_PERSISTENT,
                      &claim->gate->dir, &entry, &value);
}


void
zkl_custody_unsure(zkl_gate_t *gate)
{
    if (gate->state == ZKL_GATE_OWNED) {
        zkl_gate_state(gate, ZKL_GATE_LIST);
        zkl_gate_go(gate);
    }
}


void
zkl_custody_connected(zkl_worker_t *worker)
{
    ngx_queue_t  *q;
    zkl_gate_t   *gate;

    for (q = ngx_queue_head(&worker->gates);
         q != ngx_queue_sentinel(&worker->gates);
         q = ngx_queue_next(q))
    {
        gate = ngx_queue_data(q, zkl_gate_t, queue);

        /* a delete of an entry, or an entry, may have been lost */

        if (gate->state == ZKL_GATE_READ || gate->state == ZKL_GATE_OWNED) {
            zkl_gate_state(gate, ZKL_GATE_LIST);
        }

        if (gate->state != ZKL_GATE_DUE) {
            gate->due = ngx_current_msec;
            gate->failures = 0;
        }
    }

    zkl_custody_sweep(worker);
    zkl_custody_look(worker);
}


void
zkl_custody_sweep(zkl_worker_t *worker)
{
    ngx_queue_t  *q, *next;

    for (q = ngx_queue_head(&worker->gates);
         q != ngx_queue_sentinel(&worker->gates);
         q = next)
    {
        next = ngx_queue_next(q);
        zkl_gate_go(ngx_queue_data(q, zkl_gate_t, queue));
    }

    if (worker->unlisted) {
        zkl_custody_look(worker);
    }
}


void
zkl_custody_lost(zkl_worker_t *worker, int64_t session)
{
    ngx_queue_t  *q, *next;
    zkl_gate_t   *gate;

    for (q = ngx_queue_head(&worker->gates);
         q != ngx_queue_sentinel(&worker->gates);
         q = next)
    {
        next = ngx_queue_next(q);
        gate = ngx_queue_data(q, zkl_gate_t, queue);

        if (gate->state == ZKL_GATE_GONE) {
            continue;
        }

        if (ngx_queue_empty(&gate->claims)) {

            /* the next list shows the directory, if there is one */

            zkl_gate_free(gate);
            continue;
        }

        gate->former = session;
        gate->failures = 0;
        gate->due = ngx_current_msec;

        zkl_gate_state(gate, ZKL_GATE_DUE);
    }
}


/* A gate's way from state to state. */


/* The operation of the state before does not count any more. */

static void
zkl_gate_state(zkl_gate_t *gate, zkl_gate_state_e state)
{
    if (gate->op != NULL) {
        gate->op->handler = NULL;
        gate->op = NULL;
    }

    if (gate->state == ZKL_GATE_READ) {
        free(gate->entries);
        gate->entries = NULL;
    }

    ngx_log_debug2(NGX_LOG_DEBUG_HTTP, gate->worker->log, 0,
                   "zk lock gate: %V state:%d", &gate->name, state);

    gate->state = state;
}


/* Sends the operation of the state, unless it is under way or not due. */

static void
zkl_gate_go(zkl_gate_t *gate)
{
    zkl_op_t             *op;
    zkl_session_t        *session;
    const zkl_gate_op_t  *send;

    static const zkl_gate_op_t  sends[] = {
        { ZKL_OP_PERSISTENT, 1 },           /* NEW */
        { ZKL_OP_GATE, 0 },                 /* DUE */
        { ZKL_OP_GET, 0 },                  /* LOOK */
        { ZKL_OP_SET, 1 },                  /* COUNT */
        { ZKL_OP_LIST, 1 },                 /* LIST */
        { 0, 0 },                           /* READ: reads of entries */
        { 0, 0 },                           /* OWNED: none */
        { ZKL_OP_DELETE, 1 },               /* EMPTY */
        { ZKL_OP_DELETE, 0 }                /* LEFT */
    };

    session = gate->worker->session;

    if (gate->op != NULL || !zkl_session_connected(session)
        || (ngx_msec_int_t) (gate->due - ngx_current_msec) > 0)
    {
        return;
    }

    if (gate->state == ZKL_GATE_READ) {
        zkl_gate_read(gate);
        return;
    }

    if (gate->state == ZKL_GATE_OWNED || gate->state == ZKL_GATE_GONE
        || (gate->state == ZKL_GATE_DUE && gate->worker->leaving
            && ngx_queue_empty(&gate->claims)))
    {
        return;
    }

    send = &sends[gate->state];

    op = zkl_op_new(session, send->type, send->dir ? &gate->dir : &zkl_gates,
                    send->dir ? NULL : &gate->name, NULL);
    if (op == NULL) {
        /* the sweep tries again */
        return;
    }

    op->fresh = (gate->state == ZKL_GATE_LOOK);
    op->handler = zkl_gate_handler;
    op->data = gate;

    gate->op = op;

    zkl_session_send(op);
}


static void
zkl_gate_handler(zkl_op_t *op)
{
    zkl_key_t          key;
    zkl_gate_t        *gate;
    zkl_worker_t      *worker;
    zkl_gate_state_e   next;

    gate = op->data;
    gate->op = NULL;

    worker = gate->worker;
    next = gate->state;

    switch (gate->state) {

    case ZKL_GATE_NEW:

        if (op->rc == ZKL_OK) {

            /* how often the gate was taken over before is not known */

            gate->term = 0;
            zkl_gate_tell(gate, zkl_gate_anew);
        }

        if (op->rc == ZKL_OK || op->rc == ZKL_EXISTS) {
            next = !zkl_gate_home(gate) ? ZKL_GATE_COUNT
                               : ngx_queue_empty(&gate->claims)
                                 ? ZKL_GATE_OWNED : ZKL_GATE_LIST;
        }

        break;

    case ZKL_GATE_DUE:

        if (op->rc == ZKL_OK) {
            next = ZKL_GATE_COUNT;

        } else if (op->rc == ZKL_EXISTS) {
            next = ZKL_GATE_LOOK;
        }

        break;

    case ZKL_GATE_LOOK:

        if (op->rc == ZKL_NO_NODE) {
            next = ZKL_GATE_DUE;
            break;
        }

        if (op->rc != ZKL_OK) {
            break;
        }

        if (zkl_zone_key(worker->zone, &key) == NGX_OK && op->owner == key.id) {

            /* the answer to the create was lost */

            next = ZKL_GATE_COUNT;
            break;
        }

        if (op->owner == gate->former || zkl_adopt_has(worker, op->owner)
            || (op->owner != gate->seen && !ngx_queue_empty(&gate->claims)))
        {
            gate->seen = op->owner;
            gate->failures = 0;
            gate->due = ngx_current_msec + ZKL_CUSTODY_BEHIND;
            return;
        }

        /* another session counts the leases */

        zkl_gate_tell(gate, zkl_claim_forsake);
        zkl_gate_free(gate);
        return;

    case ZKL_GATE_COUNT:
    case ZKL_GATE_LIST:

        if (op->rc == ZKL_OK && gate->state == ZKL_GATE_LIST) {
            zkl_gate_listed(gate, op);
            return;
        }

        if (op->rc == ZKL_OK) {
            gate->term = (uint32_t) op->version;
            next = ZKL_GATE_LIST;

        } else if (op->rc == ZKL_NO_NODE) {
            next = zkl_gate_used(gate) ? ZKL_GATE_NEW : ZKL_GATE_LEFT;
        }

        break;

    case ZKL_GATE_EMPTY:

        if (op->rc == ZKL_OK || op->rc == ZKL_NO_NODE) {
            next = ZKL_GATE_LEFT;

        } else if (op->rc == ZKL_REFUSED) {

            /* the directory is not empty */

            zkl_gate_again(gate, ZKL_GATE_LIST);
            return;
        }

        break;

    default: /* ZKL_GATE_LEFT */

        if (op->rc == ZKL_OK || op->rc == ZKL_NO_NODE) {
            zkl_gate_free(gate);
            return;
        }

        break;
    }

    if (next != gate->state) {
        gate->failures = 0;
        zkl_gate_state(gate, next);
        zkl_gate_go(gate);

        if (gate->state == ZKL_GATE_OWNED) {
            zkl_worker_tell_claims(worker, zkl_claim_gated);
        }

    } else if (op->rc != ZKL_UNSENT && op->rc != ZKL_UNKNOWN) {

        /* else the next connection tries again */

        zkl_gate_again(gate, gate->state);

        if (zkl_gate_home(gate)) {

            /* a client that waits for a durable lease is told */

            zkl_worker_tell_claims(worker, zkl_claim_gated);
        }
    }
}


/* Calls tell for each claim of the gate; the claim may leave, or end. */

static void
zkl_gate_tell(zkl_gate_t *gate, void (*tell)(zkl_claim_t *claim))
{
    ngx_queue_t  *q, *next;

    for (q = ngx_queue_head(&gate->claims);
         q != ngx_queue_sentinel(&gate->claims);
         q = next)
    {
        next = ngx_queue_next(q);
        tell(ngx_queue_data(q, zkl_claim_t, custody));
    }
}


static void
zkl_gate_anew(zkl_claim_t *claim)
{
    claim->term = -1;
}


/* The operation of the state is due later: less and less often. */

static void
zkl_gate_again(zkl_gate_t *gate, zkl_gate_state_e state)
{
    ngx_msec_t  wait;

    wait = (ngx_msec_t) ZKL_CUSTODY_AGAIN << ngx_min(gate->failures, 6);

    gate->failures++;
    gate->due = ngx_current_msec + ngx_min(wait, ZKL_CUSTODY_RARELY);

    zkl_gate_state(gate, state);
}


/*
 * Another session may have the gate: the leases do not count until a read shows
 * the owner.
 */

static void
zkl_gate_doubt(zkl_gate_t *gate)
{
    gate->due = ngx_current_msec;
    zkl_gate_state(gate, ZKL_GATE_LOOK);

    zkl_gate_tell(gate, zkl_claim_ungated);
    zkl_gate_go(gate);
}


/*
 * The entries: those that claims of this worker have are known; those of claims
 * that lack an entry are made again, because another client has removed them.
 */

static void
zkl_gate_listed(zkl_gate_t *gate, zkl_op_t *op)
{
    u_char        buf[ZKL_ENTRY_LEN];
    zkl_id_t      id;
    ngx_str_t     key, *entry;
    ngx_uint_t    i, n;
    ngx_queue_t  *q, *next;
    zkl_claim_t  *claim;

    if ((uint32_t) op->version != gate->term) {

        /*
         * Another session has taken the gate after a client removed it; or a
         * client has written to the directory.
         */

        zkl_gate_doubt(gate);
        return;
    }

    zkl_gate_state(gate, ZKL_GATE_READ);

    /* the gate owns the names from now on */

    gate->entries = op->children;
    gate->next = 0;
    gate->failed = 0;

    op->children = NULL;

    n = 0;

    for (i = 0; i < op->nchildren; i++) {

        if (gate->entries[i].len == ZKL_ENTRY_LEN) {
            gate->entries[n++] = gate->entries[i];
        }
    }

    op->nchildren = 0;
    gate->nentries = n;

    if (n != 0) {
        ngx_qsort(gate->entries, n, sizeof(ngx_str_t), zkl_gate_compare);
    }

    key.data = buf;
    key.len = ZKL_ENTRY_LEN;

    for (q = ngx_queue_head(&gate->claims);
         q != ngx_queue_sentinel(&gate->claims);
         q = next)
    {
        next = ngx_queue_next(q);
        claim = ngx_queue_data(q, zkl_claim_t, custody);

        id = zkl_claim_id(claim);
        zkl_gate_entry(&id, buf);

        entry = n ? bsearch(&key, gate->entries, n, sizeof(ngx_str_t),
                            zkl_gate_compare)
                  : NULL;

        if (entry != NULL) {
            entry->len = 0;

        } else if (claim->lasting == ZKL_DURABLE && claim->replace == NULL
                   && claim->adoption == NULL)
        {
            zkl_gate_enter(gate, claim);
        }

        zkl_claim_gated(claim);
    }

    zkl_gate_read(gate);
}


/* The names of entries; of one that a claim has the length is 0. */

static int ngx_libc_cdecl
zkl_gate_compare(const void *one, const void *two)
{
    const ngx_str_t  *a, *b;

    a = one;
    b = two;

    return ngx_memcmp(a->data, b->data, ZKL_ENTRY_LEN);
}


static void
zkl_gate_enter(zkl_gate_t *gate, zkl_claim_t *claim)
{
    u_char             text[ZKL_CLAIM_DATA_MAX];
    size_t             index_at;
    ngx_str_t          value;
    zkl_op_t          *op;
    zkl_claim_data_t   cdata;

    zkl_claim_cdata(claim, &cdata);

    value.data = text;
    value.len = zkl_claim_data_write((char *) text, &cdata, &index_at);

    op = zkl_custody_entry(claim, &value);
    if (op == NULL) {
        gate->failed = 1;
        return;
    }

    op->handler = zkl_gate_written_handler;
    op->data = gate->worker;

    zkl_session_send(op);
}


/* Reads the entries that no claim has. */

static void
zkl_gate_read(zkl_gate_t *gate)
{
    ngx_str_t       *name;
    ngx_uint_t       used;
    zkl_session_t   *session;

    session = gate->worker->session;

    while (gate->next < gate->nentries && gate->pending < ZKL_CUSTODY_READS
           && zkl_session_connected(session))
    {
        name = &gate->entries[gate->next++];

        if (name->len == 0) {
            continue;
        }

        gate->failed |= (zkl_gate_get(gate, &gate->dir, name, NULL)
                         != NGX_OK);
    }

    if (gate->next < gate->nentries || gate->pending != 0) {
        return;
    }

    used = zkl_gate_used(gate);

    if (gate->failed || (!used && gate->nentries != 0)) {

        /* or the entries are about to be removed, or cannot be */

        zkl_gate_again(gate, ZKL_GATE_LIST);

    } else if (used) {
        gate->failures = 0;
        zkl_gate_state(gate, ZKL_GATE_OWNED);

    } else {
        zkl_gate_state(gate, ZKL_GATE_EMPTY);
        zkl_gate_go(gate);
    }
}


/* Reads an entry; or, with the text of the entry, the claim's znode. */

static ngx_int_t
zkl_gate_get(zkl_gate_t *gate, ngx_str_t *dir, ngx_str_t *name, ngx_str_t *text)
{
    zkl_op_t  *op;

    op = zkl_op_new(gate->worker->session, ZKL_OP_GET, dir, name, text);

    if (op == NULL) {
        return NGX_ERROR;
    }

    op->whole = (text == NULL);
    op->watch = text != NULL
                && zkl_session_may_watch(gate->worker->session,
                                         dir->len + 1 + ZKL_CLAIM_MAX);
    op->handler = zkl_gate_get_handler;
    op->data = gate;

    gate->pending++;

    zkl_session_send(op);

    return NGX_OK;
}


static void
zkl_gate_get_handler(zkl_op_t *op)
{
    u_char       entry[ZKL_ENTRY_LEN];
    ngx_int_t    rc;
    zkl_gate_t  *gate;

    gate = op->data;
    gate->pending--;

    if (gate->state == ZKL_GATE_GONE) {
        zkl_gate_free(gate);
        return;
    }

    if (gate->state != ZKL_GATE_READ) {
        return;
    }

    rc = op->value.len ? zkl_gate_claim_read(gate, op, entry)
                       : zkl_gate_entry_read(gate, op, entry);

    switch (rc) {

    case NGX_OK:
        break;

    case NGX_ABORT:

        if (!gate->warned) {
            gate->warned = 1;

            ngx_log_error(NGX_LOG_WARN, gate->worker->log, 0,
                          "the entry \"%*s\" below the gate \"%V\" names no "
                          "claim that is a lease of that gate, and is deleted, "
                          "as are others of which no line tells",
                          (size_t) ZKL_ENTRY_LEN, entry, &gate->name);
        }

        /* fall through */

    case NGX_DONE:
        zkl_gate_remove(gate, entry);
        break;

    case NGX_BUSY:

        /* the zone is full: the other entries wait, too */

        gate->next = gate->nentries;
        /* fall through */

    default:
        gate->failed = 1;
        break;
    }

    zkl_gate_read(gate);
}


/* NGX_ABORT: no gateway has made the entry; NGX_DONE: the claim is gone. */

static ngx_int_t
zkl_gate_entry_read(zkl_gate_t *gate, zkl_op_t *op, u_char *entry)
{
    u_char       own[ZKL_ENTRY_LEN], buf[ZKL_CLAIM_MAX];
    ngx_str_t    name;
    zkl_lease_t  lease;

    ngx_memcpy(entry, op->path.data + op->path.len - ZKL_ENTRY_LEN,
               ZKL_ENTRY_LEN);

    if (op->rc != ZKL_OK) {
        return (op->rc == ZKL_NO_NODE) ? NGX_OK : NGX_AGAIN;
    }

    if (op->cut || zkl_gate_text_read(&op->reply, &lease) != NGX_OK) {
        return NGX_ABORT;
    }

    zkl_gate_entry(&lease.child.id, own);

    if (ngx_memcmp(own, entry, ZKL_ENTRY_LEN) != 0) {
        return NGX_ABORT;
    }

    name.data = buf;
    name.len = zkl_name_claim_write((char *) buf, &lease.child.id,
                                    lease.child.mode, lease.child.seq);

    return zkl_gate_get(gate, &lease.path, &name, &op->reply);
}


/*
 * The text of an entry has three parts: the lock's path, a line; the name of
 * the claim's znode, which is empty if the claim is the lock's znode, a line;
 * and the claim data as they were when the claim became durable, which count if
 * a Curator client has written a mark over the claim's own.
 */

static ngx_int_t
zkl_gate_text_read(ngx_str_t *text, zkl_lease_t *lease)
{
    u_char            *p, *last, *name;
    zkl_child_t       *child;
    zkl_claim_data_t   data;

    child = &lease->child;
    last = text->data + text->len;

    lease->path.data = text->data;

    p = ngx_strlchr(text->data, last, LF);
    if (p == NULL) {
        return NGX_DECLINED;
    }

    lease->path.len = p - text->data;
    name = p + 1;

    p = ngx_strlchr(name, last, LF);
    if (p == NULL) {
        return NGX_DECLINED;
    }

    lease->cdata.data = p + 1;
    lease->cdata.len = last - lease->cdata.data;

    if (lease->path.len > ZKL_PATH_MAX
        || lease->cdata.len > ZKL_CLAIM_DATA_MAX
        || zkl_name_path_check((char *) text->data, lease->path.len) != NULL)
    {
        return NGX_DECLINED;
    }

    if (p == name) {
        zkl_claim_data_read(&data, (char *) lease->cdata.data,
                            lease->cdata.len);

        ngx_memzero(child, sizeof(zkl_child_t));

        child->id = data.id;
        child->has_id = data.has_id;
        child->mode = ZKL_NODE;

    } else if (zkl_name_child_read(child, (char *) name, p - name) != 0) {
        return NGX_DECLINED;
    }

    return child->has_id ? NGX_OK : NGX_DECLINED;
}


/* Makes a claim, if the znode is a lease of the gate. */

static ngx_int_t
zkl_gate_claim_read(zkl_gate_t *gate, zkl_op_t *op, u_char *entry)
{
    u_char             buf[ZKL_CLAIM_MAX];
    ngx_str_t          name;
    zkl_lease_t        lease;
    zkl_child_t       *child;
    zkl_claim_data_t   data;

    (void) zkl_gate_text_read(&op->value, &lease);

    child = &lease.child;
    zkl_gate_entry(&child->id, entry);

    if (child->mode == ZKL_MUTEX || child->mode == ZKL_WRITE) {

        /* another gateway may have made the claim a reader */

        name.data = buf;
        name.len = zkl_name_claim_write((char *) buf, &child->id, ZKL_READ,
                                        child->seq);

        if (ngx_memcmp(op->path.data + op->path.len - name.len, buf, name.len)
            == 0)
        {
            child->mode = ZKL_READ;

        } else if (op->rc == ZKL_NO_NODE) {
            return zkl_gate_get(gate, &lease.path, &name, &op->value);
        }
    }

    if (op->rc != ZKL_OK) {
        return (op->rc == ZKL_NO_NODE) ? NGX_DONE : NGX_AGAIN;
    }

    zkl_claim_data_read(&data, (char *) op->reply.data, op->reply.len);

    if (data.index < 0 && data.revoke) {
        zkl_claim_data_read(&data, (char *) lease.cdata.data, lease.cdata.len);

    } else {
        lease.cdata = op->reply;
    }

    if (op->owner != 0 || data.gate_len != ZKL_GATE_LEN
        || ngx_memcmp(data.gate, gate->name.data, ZKL_GATE_LEN) != 0
        || (child->mode == ZKL_NODE && !zkl_node_is(&child->id, op)))
    {
        return NGX_ABORT;
    }

    return zkl_claim_inherit(gate->worker, &lease.path, child, &lease.cdata,
                             gate, op);
}


static void
zkl_gate_remove(zkl_gate_t *gate, u_char *entry)
{
    ngx_str_t  name;
    zkl_op_t  *op;

    name.data = entry;
    name.len = ZKL_ENTRY_LEN;

    op = zkl_op_new(gate->worker->session, ZKL_OP_DELETE, &gate->dir, &name,
                    NULL);
    if (op == NULL) {
        zkl_gate_relist(gate);
        return;
    }

    op->gather = 1;
    op->deferrable = 1;
    op->handler = zkl_gate_written_handler;
    op->data = gate->worker;

    zkl_session_send(op);
}


/*
 * Of the create or delete of an entry.  A lost answer needs nothing, because
 * the next connection lists the entries; but the connection may well be there
 * when an operation is not sent: without memory libzookeeper refuses.
 */

static void
zkl_gate_written_handler(zkl_op_t *op)
{
    u_char      *name;
    zkl_gate_t  *gate;

    if (op->rc != ZKL_UNSENT) {
        return;
    }

    /* the gate may have been freed meanwhile */

    name = op->path.data + op->path.len - (ZKL_LEASES_LEN + 1 + ZKL_ENTRY_LEN);
    gate = zkl_gate_find(op->data, name);

    if (gate != NULL) {
        zkl_gate_relist(gate);
    }
}


/* An entry may be left over, or missing: a list shows that, some time later. */

static void
zkl_gate_relist(zkl_gate_t *gate)
{
    gate->failed = 1;

    if (gate->state == ZKL_GATE_OWNED) {
        zkl_gate_again(gate, ZKL_GATE_LIST);
    }
}


/* The list of the gates. */


void
zkl_custody_listed(zkl_worker_t *worker, ngx_str_t *path)
{
    if (path->len == zkl_gates.len
        && ngx_memcmp(path->data, zkl_gates.data, path->len) == 0)
    {
        zkl_custody_look(worker);
    }
}


static void
zkl_custody_look(zkl_worker_t *worker)
{
    zkl_op_t  *op;

    worker->unlisted = 1;

    if (worker->listing != NULL || !zkl_session_connected(worker->session)) {
        return;
    }

    op = zkl_op_new(worker->session, ZKL_OP_LIST, &zkl_gates, NULL, NULL);
    if (op == NULL) {
        return;
    }

    op->watch = 1;
    op->handler = zkl_custody_gates_handler;
    op->data = worker;

    worker->unlisted = 0;
    worker->listing = op;

    zkl_session_send(op);
}


static void
zkl_custody_gates_handler(zkl_op_t *op)
{
    ngx_uint_t     n;
    ngx_str_t      name, *names;
    ngx_queue_t   *q, *next;
    zkl_gate_t    *gate;
    zkl_worker_t  *worker;

    worker = op->data;
    worker->listing = NULL;

    if (op->rc != ZKL_OK) {

        /* there is no gate so far, or the next connection looks again */

        worker->unlisted = 1;
        return;
    }

    names = op->children;
    n = op->nchildren;

    if (n != 0) {
        ngx_qsort(names, n, sizeof(ngx_str_t), zkl_custody_compare);
    }

    for (q = ngx_queue_head(&worker->gates);
         q != ngx_queue_sentinel(&worker->gates);
         q = next)
    {
        next = ngx_queue_next(q);
        gate = ngx_queue_data(q, zkl_gate_t, queue);

        if (!zkl_custody_lists(names, n, gate->name.data, ZKL_GATE_LEN)) {

            if (gate->state != ZKL_GATE_DUE && gate->state < ZKL_GATE_LEFT) {
                zkl_gate_doubt(gate);
            }

            continue;
        }

        if (gate->state == ZKL_GATE_DUE && gate->op == NULL) {

            /* a session has taken the gate; this one, if an answer was lost */

            zkl_gate_state(gate, ZKL_GATE_LOOK);
            continue;
        }

        if (!zkl_custody_lists(names, n, gate->name.data, ZKL_LEASES_LEN)) {

            /* a client has removed the directory, with the entries */

            zkl_custody_unsure(gate);
        }
    }

    if (zkl_session_gated(worker->session, &name) == NGX_OK
        && !zkl_custody_lists(names, n, name.data, name.len))
    {
        zkl_session_ungated(worker->session);
    }

    if (!worker->leaving) {
        zkl_custody_found(worker, names, n);
    }

    zkl_custody_sweep(worker);
}


/*
 * Finds the directories whose gates are gone.  The more gates there are before
 * the gate of this session, the longer this worker waits.
 */

static void
zkl_custody_found(zkl_worker_t *worker, ngx_str_t *names, ngx_uint_t n)
{
    ngx_uint_t   i;
    ngx_msec_t   wait;
    ngx_str_t    own;
    zkl_gate_t  *gate;

    wait = ZKL_CUSTODY_LAST;

    if (zkl_session_gated(worker->session, &own) == NGX_OK) {
        wait = ZKL_CUSTODY_FIRST;

        for (i = 0; i < n; i++) {

            if (names[i].len == ZKL_GATE_LEN
                && ngx_memcmp(names[i].data, own.data, ZKL_GATE_LEN) < 0)
            {
                wait += ZKL_CUSTODY_RANK;
            }
        }
    }

    for (i = 0; i < n; i++) {

        if (names[i].len != ZKL_LEASES_LEN
            || ngx_memcmp(names[i].data + ZKL_GATE_LEN, ZKL_LEASES,
                          sizeof(ZKL_LEASES) - 1)
               != 0
            || zkl_custody_lists(names, n, names[i].data, ZKL_GATE_LEN)
            || zkl_gate_find(worker, names[i].data) != NULL)
        {
            continue;
        }

        gate = zkl_gate_new(worker, names[i].data, ZKL_GATE_DUE);
        if (gate == NULL) {
            worker->unlisted = 1;
            return;
        }

        gate->due += ngx_min(wait, ZKL_CUSTODY_LAST);
    }
}


static ngx_uint_t
zkl_custody_lists(ngx_str_t *names, ngx_uint_t n, const u_char *name,
    size_t len)
{
    ngx_str_t  key;

    key.data = (u_char *) name;
    key.len = len;

    return n != 0
           && bsearch(&key, names, n, sizeof(ngx_str_t), zkl_custody_compare)
              != NULL;
}


static int ngx_libc_cdecl
zkl_custody_compare(const void *one, const void *two)
{
    int               rc;
    const ngx_str_t  *a, *b;

    a = one;
    b = two;

    rc = ngx_memcmp(a->data, b->data, ngx_min(a->len, b->len));

    return (rc != 0) ? rc : (a->len > b->len) - (a->len < b->len);
}
