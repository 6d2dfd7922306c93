
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
 *   NEW     create of the           COUNT
 *           directory
 *   DUE     create of the gate,     COUNT; or LOOK, if a session has the gate
 *           when the time comes
 *   LOOK    read of the gate        COUNT, if the gate is this session's; LOOK,
 *                                   later, if a former or an adopted session
 *                                   has the gate, or one not seen before;
 *                                   DUE, if the gate is gone; else GONE, and
 *                                   the claims are forsaken
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
 *   LEFT    delete of the gate      GONE
 *
 * From LIST on the session counts.  The end of the session leads all gates to
 * DUE, the home gate too, because the next session makes another one.
 *
 * All workers of all gateways see at the same moment that a gate is gone.  So a
 * worker waits first, because a worker that has the records of the leases does
 * not: the more gates and directories there are before the worker's own gate,
 * the longer is the wait, and mostly a single worker sends the create.
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
 * need the gate, so the sweep frees a gate that is GONE when `pending` is 0.
 * `entries` is NULL but in READ.
 */


#include "core/custody.h"
#include "core/adopt.h"
#include "core/node.h"


/* time for a worker that has the records to take the gate, ms */
#define ZKL_CUSTODY_FIRST             500

/* how much longer for each gate or directory before the own gate; at most */
#define ZKL_CUSTODY_RANK              125
#define ZKL_CUSTODY_LAST              5000

/* how soon a gate that another session has is read again, ms */
#define ZKL_CUSTODY_BEHIND            1000

/* how soon what was refused is tried again; twice that the next time */
#define ZKL_CUSTODY_AGAIN             5000
#define ZKL_CUSTODY_RARELY            300000

/* with so many reads of entries under way the next is not read yet */
#define ZKL_CUSTODY_READS             64


/* what a state sends, and the states that the answers lead to */

typedef struct {
    zkl_op_e                       type;
    size_t                         len;         /* of the name: the gate's or
                                                   the directory's */
    zkl_gate_state_e               done;        /* after OK */
    zkl_rc_e                       rc;          /* another answer that leads */
    zkl_gate_state_e               other;       /* on, and where to */
} zkl_gate_step_t;


/* what an entry says */

typedef struct {
    ngx_str_t                      path;        /* of the lock */
    ngx_str_t                      cdata;
    zkl_child_t                    child;
} zkl_lease_t;


static zkl_gate_t *zkl_gate_next(zkl_worker_t *worker, zkl_gate_t *gate);
static zkl_gate_t *zkl_gate_find(zkl_worker_t *worker, const u_char *name);
static zkl_gate_t *zkl_gate_have(zkl_worker_t *worker, const u_char *name,
    zkl_gate_state_e state);
static ngx_uint_t zkl_gate_home(zkl_gate_t *gate);
static ngx_uint_t zkl_gate_used(zkl_gate_t *gate);
static void zkl_gate_entry(zkl_id_t id, u_char *buf);
static void zkl_gate_state(zkl_gate_t *gate, zkl_gate_state_e state);
static void zkl_gate_go(zkl_gate_t *gate);
static void zkl_gate_handler(zkl_op_t *op);
static void zkl_gate_tell(zkl_gate_t *gate, void (*tell)(zkl_claim_t *claim));
static void zkl_gate_anew(zkl_claim_t *claim);
static void zkl_gate_again(zkl_gate_t *gate, zkl_gate_state_e state);
static void zkl_gate_doubt(zkl_gate_t *gate);
static void zkl_gate_listed(zkl_gate_t *gate, zkl_op_t *op);
static void zkl_gate_check(zkl_claim_t *claim);
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
static void zkl_custody_gates_handler(zkl_op_t *op);
static void zkl_custody_sort(ngx_str_t *names, ngx_uint_t n);
static ngx_str_t *zkl_custody_lists(ngx_str_t *names, ngx_uint_t n,
    const u_char *name, size_t len);
static int ngx_libc_cdecl zkl_custody_compare(const void *one,
    const void *two);


static const zkl_gate_step_t  zkl_gate_steps[] = {

    /* GONE: sends nothing */
    { 0, 0, 0, 0, 0 },

    /* DUE */
    { ZKL_OP_GATE, ZKL_GATE_LEN, ZKL_GATE_COUNT, ZKL_EXISTS, ZKL_GATE_LOOK },

    /* LEFT */
    { ZKL_OP_DELETE, ZKL_GATE_LEN, ZKL_GATE_GONE, ZKL_NO_NODE, ZKL_GATE_GONE },

    /* NEW */
    { ZKL_OP_PERSISTENT, ZKL_LEASES_LEN, ZKL_GATE_COUNT,
      ZKL_EXISTS, ZKL_GATE_COUNT },

    /* LOOK: GONE only if the read shows another session */
    { ZKL_OP_GET, ZKL_GATE_LEN, ZKL_GATE_GONE, ZKL_NO_NODE, ZKL_GATE_DUE },

    /* COUNT */
    { ZKL_OP_SET, ZKL_LEASES_LEN, ZKL_GATE_LIST, ZKL_NO_NODE, ZKL_GATE_LEFT },

    /* EMPTY */
    { ZKL_OP_DELETE, ZKL_LEASES_LEN, ZKL_GATE_LEFT,
      ZKL_NO_NODE, ZKL_GATE_LEFT },

    /* LIST */
    { ZKL_OP_LIST, ZKL_LEASES_LEN, ZKL_GATE_READ, ZKL_NO_NODE, ZKL_GATE_LEFT }
};


void
zkl_custody_stop(zkl_worker_t *worker)
{
    ngx_queue_t  *q;
    zkl_gate_t   *gate;

    while (!ngx_queue_empty(&worker->gates)) {
        q = ngx_queue_head(&worker->gates);
        gate = ngx_queue_data(q, zkl_gate_t, queue);

        zkl_gate_state(gate, ZKL_GATE_GONE);

        ngx_queue_remove(q);
        ngx_free(gate);
    }
}


/* The gate behind a gate, or the first gate.  NULL: there is none. */

static zkl_gate_t *
zkl_gate_next(zkl_worker_t *worker, zkl_gate_t *gate)
{
    ngx_queue_t  *q;

    q = ngx_queue_next(gate ? &gate->queue : &worker->gates);

    return (q != ngx_queue_sentinel(&worker->gates))
           ? ngx_queue_data(q, zkl_gate_t, queue) : NULL;
}


static zkl_gate_t *
zkl_gate_find(zkl_worker_t *worker, const u_char *name)
{
    zkl_gate_t  *gate;

    gate = NULL;

    while ((gate = zkl_gate_next(worker, gate)) != NULL) {

        if (gate->state != ZKL_GATE_GONE
            && ngx_memcmp(gate->name.data, name, ZKL_GATE_LEN) == 0)
        {
            return gate;
        }
    }

    return NULL;
}


/* Finds the gate, or makes the gate in that state.  NULL: no memory. */

static zkl_gate_t *
zkl_gate_have(zkl_worker_t *worker, const u_char *name, zkl_gate_state_e state)
{
    zkl_gate_t  *gate;

    gate = zkl_gate_find(worker, name);
    if (gate != NULL) {
        return gate;
    }

    gate = ngx_calloc(sizeof(zkl_gate_t), worker->log);
    if (gate == NULL) {
        return NULL;
    }

    gate->worker = worker;

    (void) ngx_sprintf(gate->path, ZKL_GATES "/%*s" ZKL_LEASES,
                       (size_t) ZKL_GATE_LEN, name);

    gate->name.data = gate->path + sizeof(ZKL_GATES);
    gate->name.len = ZKL_GATE_LEN;
    gate->dir.data = gate->path;
    gate->dir.len = ZKL_LEASES_PATH;

    ngx_queue_init(&gate->claims);
    ngx_queue_insert_tail(&worker->gates, &gate->queue);

    zkl_gate_state(gate, state);

    return gate;
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


ngx_uint_t
zkl_custody_counts(zkl_gate_t *gate)
{
    return gate->state >= ZKL_GATE_LIST;
}


/*
 * The name of a claim's entry, ZKL_ENTRY_LEN bytes.  The record's number makes
 * the names of a gate's leases differ.
 */

static void
zkl_gate_entry(zkl_id_t id, u_char *buf)
{
    (void) ngx_sprintf(buf, "%02xd%02xd%08xD",
                       (int) id.random[ZKL_RANDOM_LEN - 2],
                       (int) id.random[ZKL_RANDOM_LEN - 1], id.record);
}


ngx_int_t
zkl_custody_ready(zkl_worker_t *worker, zkl_gate_t **gate)
{
    ngx_int_t  rc;
    ngx_str_t  name;

    rc = zkl_session_gated(worker->session, &name);
    if (rc != NGX_OK) {
        return rc;
    }

    *gate = zkl_gate_have(worker, name.data, ZKL_GATE_NEW);
    if (*gate == NULL) {
        return NGX_AGAIN;
    }

    if (zkl_custody_counts(*gate)) {
        return NGX_OK;
    }

    zkl_gate_go(*gate);

    return (*gate)->failures ? NGX_DECLINED : NGX_AGAIN;
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

    zkl_gate_entry(zkl_claim_id(claim), entry);
    zkl_gate_remove(gate, entry);

    if (!zkl_gate_used(gate)) {

        /* no lease is left there, as a list has to show */

        zkl_custody_unsure(gate);
    }
}


ngx_int_t
zkl_custody_claim(zkl_claim_t *claim, const u_char *name)
{
    zkl_gate_t  *gate;

    gate = zkl_gate_have(claim->lock->worker, name, ZKL_GATE_LOOK);
    if (gate == NULL) {
        return NGX_ERROR;
    }

    if (gate->state == ZKL_GATE_EMPTY || gate->state == ZKL_GATE_LEFT) {

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
    ngx_str_t   entry, value, *path;

    path = &claim->lock->sn.str;

    zkl_gate_entry(zkl_claim_id(claim), leaf);
    entry.data = leaf;
    entry.len = ZKL_ENTRY_LEN;

    p = ngx_cpymem(text, path->data, path->len);
    *p++ = LF;
    p += zkl_claim_name(claim, claim->cell->was, p).len;
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
    zkl_gate_t  *gate;

    gate = NULL;

    while ((gate = zkl_gate_next(worker, gate)) != NULL) {
        gate->failures = 0;

        if (gate->state != ZKL_GATE_DUE) {

            /* a delete of an entry, or an entry, may have been lost */

            zkl_gate_state(gate, ngx_min(gate->state, ZKL_GATE_LIST));
        }
    }

    zkl_custody_listed(worker, &zkl_gates);
}


void
zkl_custody_sweep(zkl_worker_t *worker)
{
    zkl_op_t     *op;
    ngx_queue_t  *q, *next;
    zkl_gate_t   *gate;

    for (q = ngx_queue_head(&worker->gates);
         q != ngx_queue_sentinel(&worker->gates);
         q = next)
    {
        next = ngx_queue_next(q);
        gate = ngx_queue_data(q, zkl_gate_t, queue);

        if (gate->state == ZKL_GATE_GONE && gate->pending == 0) {
            ngx_queue_remove(q);
            ngx_free(gate);

        } else {
            zkl_gate_go(gate);
        }
    }

    if (!worker->unlisted || worker->listing
        || !zkl_session_connected(worker->session))
    {
        return;
    }

    op = zkl_op_new(worker->session, ZKL_OP_LIST, &zkl_gates, NULL, NULL);
    if (op == NULL) {
        return;
    }

    op->watch = 1;

    worker->unlisted = 0;
    worker->listing = 1;

    zkl_session_send(op, zkl_custody_gates_handler, worker);
}


void
zkl_custody_lost(zkl_worker_t *worker, int64_t session)
{
    zkl_gate_t  *gate;

    gate = NULL;

    while ((gate = zkl_gate_next(worker, gate)) != NULL) {
        gate->former = session;

        /* without a claim: the next list shows the directory, if any */

        zkl_gate_state(gate, ngx_queue_empty(&gate->claims) ? ZKL_GATE_GONE
                                                            : ZKL_GATE_DUE);
    }
}


/* A gate's way from state to state. */


/*
 * The operation of the state before does not count any more; that of the state
 * may be sent at once.
 */

static void
zkl_gate_state(zkl_gate_t *gate, zkl_gate_state_e state)
{
    if (gate->op != NULL) {
        gate->op->handler = NULL;
        gate->op = NULL;
    }

    free(gate->entries);
    gate->entries = NULL;

    ngx_log_debug2(NGX_LOG_DEBUG_HTTP, gate->worker->log, 0,
                   "zk lock gate: %V state:%d", &gate->name, state);

    gate->state = state;
    gate->due = ngx_current_msec;
}


/* Sends the operation of the state, unless it is under way or not due. */

static void
zkl_gate_go(zkl_gate_t *gate)
{
    ngx_str_t               name;
    zkl_op_t               *op;
    zkl_session_t          *session;
    const zkl_gate_step_t  *step;

    session = gate->worker->session;

    if (gate->op != NULL || gate->state == ZKL_GATE_GONE
        || gate->state > ZKL_GATE_LIST || !zkl_session_connected(session)
        || (ngx_msec_int_t) (gate->due - ngx_current_msec) > 0
        || (gate->state == ZKL_GATE_DUE && gate->worker->leaving
            && ngx_queue_empty(&gate->claims)))
    {
        return;
    }

    step = &zkl_gate_steps[gate->state];

    name.data = gate->name.data;
    name.len = step->len;

    op = zkl_op_new(session, step->type, &zkl_gates, &name, NULL);
    if (op == NULL) {
        /* the sweep tries again */
        return;
    }

    op->fresh = (gate->state == ZKL_GATE_LOOK);

    gate->op = op;

    zkl_session_send(op, zkl_gate_handler, gate);
}


static void
zkl_gate_handler(zkl_op_t *op)
{
    zkl_gate_t             *gate;
    zkl_worker_t           *worker;
    zkl_gate_state_e        next;
    const zkl_gate_step_t  *step;

    gate = op->data;
    gate->op = NULL;

    worker = gate->worker;
    step = &zkl_gate_steps[gate->state];
    next = gate->state;

    if (op->rc == ZKL_OK) {
        next = step->done;

        switch (gate->state) {

        case ZKL_GATE_NEW:

            /* how often the gate was taken over before is not known */

            gate->term = 0;
            zkl_gate_tell(gate, zkl_gate_anew);
            break;

        case ZKL_GATE_LOOK:

            if (op->owner == worker->zone->own->key.id) {

                /* the answer to the create was lost */

                next = ZKL_GATE_COUNT;

            } else if (op->owner == gate->former
                       || zkl_adopt_has(worker, op->owner)
                       || (op->owner != gate->seen
                           && !ngx_queue_empty(&gate->claims)))
            {
                gate->seen = op->owner;
                gate->failures = 0;
                gate->due = ngx_current_msec + ZKL_CUSTODY_BEHIND;
                return;

            } else {
                /* another session counts the leases */

                zkl_gate_tell(gate, zkl_claim_forsake);
            }

            break;

        case ZKL_GATE_COUNT:
            gate->term = (uint32_t) op->version;
            break;

        case ZKL_GATE_LIST:
            zkl_gate_listed(gate, op);
            return;

        default:
            break;
        }

    } else if (op->rc == step->rc) {
        next = step->other;

    } else if (op->rc == ZKL_REFUSED && gate->state == ZKL_GATE_EMPTY) {

        /* the directory is not empty */

        zkl_gate_again(gate, ZKL_GATE_LIST);
        return;
    }

    if (next == ZKL_GATE_LEFT && zkl_gate_used(gate)) {

        /* a client has removed the directory */

        next = ZKL_GATE_NEW;
    }

    if (next != gate->state) {
        gate->failures = 0;
        zkl_gate_state(gate, next);
        zkl_gate_go(gate);

    } else if (op->rc == ZKL_UNSENT || op->rc == ZKL_UNKNOWN) {

        /* the next connection tries again */

        return;

    } else {
        zkl_gate_again(gate, next);
    }

    if (zkl_gate_home(gate)) {

        /* leases can become durable; or not, which a client that waits hears */

        zkl_worker_tell_claims(worker, zkl_claim_gated);
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
    zkl_record_uncounted(claim->cell);
}


/* The operation of the state is due later: less and less often. */

static void
zkl_gate_again(zkl_gate_t *gate, zkl_gate_state_e state)
{
    ngx_msec_t  wait;

    wait = (ngx_msec_t) ZKL_CUSTODY_AGAIN << ngx_min(gate->failures, 6);

    zkl_gate_state(gate, state);

    gate->failures++;
    gate->due += ngx_min(wait, ZKL_CUSTODY_RARELY);
}


/*
 * Another session may have the gate: the leases do not count until a read shows
 * the owner.
 */

static void
zkl_gate_doubt(zkl_gate_t *gate)
{
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
    gate->nentries = op->nchildren;
    gate->next = 0;
    gate->failed = 0;

    op->children = NULL;
    op->nchildren = 0;

    zkl_custody_sort(gate->entries, gate->nentries);

    zkl_gate_tell(gate, zkl_gate_check);
    zkl_gate_read(gate);
}


/*
 * Looks for the claim's entry among those that are listed, and makes an entry
 * that is missing.
 */

static void
zkl_gate_check(zkl_claim_t *claim)
{
    u_char             name[ZKL_ENTRY_LEN], text[ZKL_CLAIM_DATA_MAX];
    size_t             index_at;
    ngx_str_t         *entry, value;
    zkl_op_t          *op;
    zkl_gate_t        *gate;
    zkl_claim_data_t   cdata;

    gate = claim->gate;

    zkl_gate_entry(zkl_claim_id(claim), name);

    entry = zkl_custody_lists(gate->entries, gate->nentries, name,
                              ZKL_ENTRY_LEN);
    if (entry != NULL) {

        /* is not read: the name has not the length of an entry's any more */

        entry->len++;

    } else if (claim->lasting == ZKL_DURABLE && claim->replace == NULL
               && claim->adoption == NULL)
    {
        zkl_claim_cdata(claim, &cdata);

        value.data = text;
        value.len = zkl_claim_data_write((char *) text, &cdata, &index_at);

        op = zkl_custody_entry(claim, &value);

        if (op != NULL) {
            zkl_session_send(op, zkl_gate_written_handler, gate->worker);

        } else {
            gate->failed = 1;
        }
    }

    zkl_claim_gated(claim);
}


/* Reads the entries that no claim has. */

static void
zkl_gate_read(zkl_gate_t *gate)
{
    ngx_str_t   *name;
    ngx_uint_t   used;

    while (gate->next < gate->nentries && gate->pending < ZKL_CUSTODY_READS
           && zkl_session_connected(gate->worker->session))
    {
        name = &gate->entries[gate->next++];

        if (name->len == ZKL_ENTRY_LEN) {
            gate->failed |= (zkl_gate_get(gate, &gate->dir, name, NULL)
                             != NGX_OK);
        }
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

    gate->pending++;

    zkl_session_send(op, zkl_gate_get_handler, gate);

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

    if (gate->state != ZKL_GATE_READ) {
        return;
    }

    rc = op->value.len ? zkl_gate_claim_read(gate, op, entry)
                       : zkl_gate_entry_read(gate, op, entry);

    if (rc == NGX_DONE) {

        if (op->rc == ZKL_OK && !gate->warned) {
            gate->warned = 1;

            ngx_log_error(NGX_LOG_WARN, gate->worker->log, 0,
                          "the entry \"%*s\" below the gate \"%V\" names no "
                          "claim that is a lease of that gate, and is deleted, "
                          "as are others of which no line tells",
                          (size_t) ZKL_ENTRY_LEN, entry, &gate->name);
        }

        zkl_gate_remove(gate, entry);

    } else if (rc != NGX_OK) {
        gate->failed = 1;

        if (rc == NGX_BUSY) {

            /* the zone is full: the other entries wait, too */

            gate->next = gate->nentries;
        }
    }

    zkl_gate_read(gate);
}


/* NGX_DONE: the claim is gone, or no gateway has made the entry. */

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
        return NGX_DONE;
    }

    zkl_gate_entry(lease.child.id, own);

    if (ngx_memcmp(own, entry, ZKL_ENTRY_LEN) != 0) {
        return NGX_DONE;
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

    name = ngx_strlchr(text->data, last, LF);
    p = name ? ngx_strlchr(++name, last, LF) : NULL;

    if (p == NULL) {
        return NGX_DECLINED;
    }

    lease->path.len = name - 1 - text->data;
    lease->cdata.data = p + 1;
    lease->cdata.len = last - lease->cdata.data;

    if (lease->cdata.len > ZKL_CLAIM_DATA_MAX
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
    zkl_gate_entry(child->id, entry);

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
        return NGX_DONE;
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

    zkl_session_send(op, zkl_gate_written_handler, gate->worker);
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
        worker->unlisted = 1;
        zkl_custody_sweep(worker);
    }
}


static void
zkl_custody_gates_handler(zkl_op_t *op)
{
    ngx_uint_t     i, n;
    ngx_msec_t     wait;
    ngx_str_t      name, *own, *names, *there, *dir;
    zkl_gate_t    *gate;
    zkl_worker_t  *worker;

    worker = op->data;
    worker->listing = 0;

    if (op->rc != ZKL_OK) {

        /* there is no gate so far, or the next connection looks again */

        worker->unlisted = 1;
        return;
    }

    names = op->children;
    n = op->nchildren;

    zkl_custody_sort(names, n);

    gate = NULL;

    while ((gate = zkl_gate_next(worker, gate)) != NULL) {

        there = zkl_custody_lists(names, n, gate->name.data, ZKL_GATE_LEN);
        dir = zkl_custody_lists(names, n, gate->name.data, ZKL_LEASES_LEN);

        if (there == NULL && gate->state >= ZKL_GATE_NEW) {
            zkl_gate_doubt(gate);

        } else if (there != NULL && gate->state == ZKL_GATE_DUE
                   && gate->op == NULL)
        {
            /* a session has taken the gate; this one, if an answer was lost */

            zkl_gate_state(gate, ZKL_GATE_LOOK);

        } else if (there != NULL && dir == NULL) {

            /* a client has removed the directory, with the entries */

            zkl_custody_unsure(gate);

        } else if (there == NULL && dir == NULL && gate->state == ZKL_GATE_DUE
                   && gate->op == NULL && ngx_queue_empty(&gate->claims))
        {
            /* the directory is gone, too: a create would delay its owner */

            zkl_gate_state(gate, ZKL_GATE_GONE);
        }
    }

    wait = ZKL_CUSTODY_LAST;

    if (zkl_session_gated(worker->session, &name) == NGX_OK) {
        own = zkl_custody_lists(names, n, name.data, name.len);

        if (own == NULL) {
            zkl_session_ungated(worker->session);

        } else {
            wait = ZKL_CUSTODY_FIRST + (own - names) * ZKL_CUSTODY_RANK;
        }
    }

    /* the directories whose gates are gone */

    for (i = 0; i < n && !worker->leaving; i++) {

        if (names[i].len != ZKL_LEASES_LEN
            || ngx_memcmp(names[i].data + ZKL_GATE_LEN, ZKL_LEASES,
                          sizeof(ZKL_LEASES) - 1)
               != 0
            || zkl_custody_lists(names, n, names[i].data, ZKL_GATE_LEN) != NULL
            || zkl_gate_find(worker, names[i].data) != NULL)
        {
            continue;
        }

        gate = zkl_gate_have(worker, names[i].data, ZKL_GATE_DUE);
        if (gate == NULL) {
            worker->unlisted = 1;
            break;
        }

        gate->due += ngx_min(wait, ZKL_CUSTODY_LAST);
    }

    zkl_custody_sweep(worker);
}


static void
zkl_custody_sort(ngx_str_t *names, ngx_uint_t n)
{
    if (n != 0) {
        ngx_qsort(names, n, sizeof(ngx_str_t), zkl_custody_compare);
    }
}


static ngx_str_t *
zkl_custody_lists(ngx_str_t *names, ngx_uint_t n, const u_char *name,
    size_t len)
{
    ngx_str_t  key;

    key.data = (u_char *) name;
    key.len = len;

    return n ? bsearch(&key, names, n, sizeof(ngx_str_t), zkl_custody_compare)
             : NULL;
}


static int ngx_libc_cdecl
zkl_custody_compare(const void *one, const void *two)
{
    const ngx_str_t  *a, *b;

    a = one;
    b = two;

    return ngx_memn2cmp(a->data, b->data, a->len, b->len);
}
