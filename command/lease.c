/*
 * The claim, by the rules of the careful holder in docs/clients.md:
 *
 *     acquire    POST with a key, by which a repeat makes no second claim,
 *                repeated while --wait lasts.  A grant that may be a while old
 *                is renewed before the claim counts as held.
 *     step       PUT at a third of the lease, which counts from before the last
 *                request that was confirmed.  404 and 410 mean that the claim
 *                is lost; after all other answers the PUT is repeated while the
 *                lease lasts.
 *     release    DELETE, repeated for ten seconds
 *     take back  POST and DELETE of a claim whose token is unknown
 *
 * A process has one claim at a time.  The lease_t belongs to the caller of
 * lease_open(), and only this file writes there.  The renewal is a call that
 * lasts over several calls of lease_step(); acquire and release wait for their
 * answers.
 */

#include "zk-lock.h"

#define LEASE_PATIENCE  10000   /* ms that an answer takes beside the wait */
#define LEASE_CALL      5000    /* ms for a release */
#define LEASE_RELEASE   10000   /* ms that a release is repeated */
#define LEASE_RESERVE   2000    /* ms for delays, of machine and gateway */
#define LEASE_LOOK      (-1)    /* the wait of a look at the claim of a key */

static const options_t *opt;
static const char *lock_url;
static lease_t *lease;
static http_wait_pt waiting;            /* NULL: no event interrupts */

static http_call_t renewal;
static bool renewing;                   /* the renewal is on its way */
static int64_t renewal_sent, renewal_due;


void lease_open(const options_t *options, const char *lock, lease_t *shared,
                http_wait_pt wait)
{
    opt = options;
    lock_url = lock;
    lease = shared;
    waiting = wait;
}

/* Returns a POST that waits so many ms for a grant, or with LEASE_LOOK returns
 * the token of the claim of this key, also of a claim that waits. */
static http_call_t lease_new_post(int64_t wait)
{
    const char *mode = opt->command == JOIN ? "member" : "exclusive";
    http_call_t call;

    if (wait == LEASE_LOOK) {
        call = http_new("POST", lock_url, LEASE_CALL);
        http_add(&call, HTTP_HEAD, "Prefer: respond-async");
    } else {
        call = http_new("POST", lock_url, wait + LEASE_PATIENCE);
        http_add(&call, HTTP_QUERY, "durable=1");
        http_add(&call, HTTP_QUERY, "wait=%" PRId64 "ms", wait);
    }
    call.last = true;
    http_add(&call, HTTP_HEAD, "Idempotency-Key: %s", lease->key);
    http_add(&call, HTTP_QUERY, "ttl=%" PRId64 "ms", opt->ttl);
    if (opt->permits) {
        mode = "semaphore";
        http_add(&call, HTTP_QUERY, "permits=%" PRId64, opt->permits);
    } else if (opt->shared) {
        mode = "shared";
    }
    http_add(&call, HTTP_QUERY, "mode=%s", mode);
    if (*opt->owner)
        http_add(&call, HTTP_QUERY, "owner=%s", opt->owner);
    return call;
}

/* Returns a call about the claim, by the token. */
static http_call_t lease_new_call(const char *method, int64_t timeout)
{
    http_call_t call = http_new(method, lock_url, timeout);

    http_add(&call, HTTP_HEAD, "Lock-Token: %s", lease->token);
    return call;
}

/* Stores the token of an answer; returns false if the answer has none. */
static bool lease_take_token(const http_call_t *call)
{
    const char *token = http_header(call, "Lock-Token");
    const char *fencing = http_header(call, "Lock-Fencing-Token");

    if (!token || strlen(token) >= TOKEN_MAX)
        return false;
    snprintf(lease->token, TOKEN_MAX, "%s", token);
    snprintf(lease->fencing, TOKEN_MAX, "%s", fencing ? fencing : "");
    return true;
}

/* Counts the lease from when the request was sent, and never as longer than
 * --ttl.  Returns false if the gateway grants less than --ttl. */
static bool lease_count(const http_call_t *call, int64_t sent)
{
    yajl_val answer = json_parse(call->body, call->len);
    int64_t ttl = json_number(answer, "ttl_ms", opt->ttl);
    int64_t left = json_number(answer, "expires_in_ms", ttl);

    yajl_tree_free(answer);
    lease->ttl = MIN(left, opt->ttl);
    lease->sent = sent;
    renewal_due = sent + lease->ttl / 3;
    return ttl >= opt->ttl;
}

/* When the command has to be told to end, to end while the lease lasts. */
int64_t lease_deadline(void)
{
    return lease->sent + lease->ttl - opt->grace - LEASE_RESERVE;
}

static bool lease_is_gone(long status)
{
    return status == 404 || status == 410;
}

/* Whether a repeat may get another answer; a 409 may be about permits. */
static bool lease_may_change(long status)
{
    return status < 300 || status >= 500 || status == 423 || status == 429
           || (status == 409 && opt->permits);
}

/* Makes a grant count.  An answer that came late, or that a repeat got, does
 * not show when the lease began, so the claim is renewed in the same call
 * structure.  Returns NULL if the claim is held, or why not. */
static const char *lease_confirm(http_call_t *call, int64_t sent)
{
    if (call->status != 201 || util_now() - sent >= opt->ttl / 3) {
        http_end(call);
        sent = util_now();
        *call = lease_new_call("PUT", opt->ttl / 3);
        http_call(call, NULL);
        if (lease_is_gone(call->status))
            lease->token[0] = '\0';
        if (call->status != 200)
            return "the grant came too late";
    }
    if (!lease_count(call, sent))
        return "the gateway cuts the lease of --ttl";
    return util_now() < lease_deadline() ? NULL : "the grant came too late";
}

/* Returns 0 if the claim is held, -1 if the wait was interrupted, or an exit
 * status after a message.  Unless 0 was returned, the caller has to call
 * lease_take_back(). */
int lease_acquire(void)
{
    const int64_t end = util_now() + opt->wait;
    int64_t sent, until;
    http_call_t call;
    const char *failure;
    uint64_t random[2];
    int rc = -1;

    *lease = (lease_t) { .sent = 0 };
    if (getrandom(random, sizeof(random), 0) != sizeof(random)) {
        util_log("no random number");
        return EXIT_SYSTEM;
    }
    snprintf(lease->key, sizeof(lease->key), "%016" PRIx64 "%016" PRIx64,
             random[0], random[1]);

    for (;;) {
        sent = util_now();
        call = lease_new_post(MAX(end - sent, 0));
        http_call(&call, waiting);
        if (call.sent && (call.status == 0 || call.status == 502
                          || call.status == 504))
            lease->unsure = true;
        if (!call.done)
            break;

        failure = NULL;         /* the status is the reason */
        if ((call.status == 200 || call.status == 201)
            && lease_take_token(&call)) {
            failure = lease_confirm(&call, sent);
            if (!failure) {
                lease->unsure = false;
                util_log_again();
                rc = 0;
                break;
            }
        }

        until = util_now() + call.pause;
        if (until >= end || !(failure || lease_may_change(call.status))) {
            rc = failure ? EXIT_UNREACHED : http_exit_status(call.status);
            if (rc != EXIT_TAKEN)
                util_log_once("no lock from %s: %s", lock_url,
                              failure ? failure : http_describe(&call));
            else if (!opt->quiet)
                util_log_once("%s is taken", lock_url);
            break;
        }
        http_end(&call);
        while (util_now() < until) {
            if (waiting(until))
                return -1;
        }
    }
    http_end(&call);
    return rc;
}

/* Deletes a claim that may exist and is not held.  Takes as long as a release,
 * and at most five seconds more. */
void lease_take_back(void)
{
    if (!lease->token[0] && lease->unsure) {
        http_call_t call = lease_new_post(LEASE_LOOK);

        http_call(&call, NULL);
        lease_take_token(&call);
        http_end(&call);
    }
    if (lease->token[0])
        lease_release(0);
    lease->unsure = false;
}

/* When lease_step() has to send a renewal. */
int64_t lease_next(void)
{
    return renewing ? NEVER : renewal_due;
}

/* Sends a renewal that is due, and takes the answer.  Does not wait.  A renewal
 * without an answer leaves time for another one before lease_deadline().
 * Returns LEASE_REVOKED once for each answer with a request to release. */
lease_state_e lease_step(void)
{
    lease_state_e state = LEASE_HELD;
    int64_t left = lease_deadline() - util_now();
    yajl_val answer;

    if (!renewing && util_now() >= renewal_due) {
        renewal_sent = util_now();
        renewal = lease_new_call("PUT", MIN(lease->ttl, left * 2) / 3);
        http_start(&renewal);
        renewing = true;
    }
    if (!renewing || !renewal.done)
        return LEASE_HELD;

    if (lease_is_gone(renewal.status)) {
        state = LEASE_LOST;
    } else if (renewal.status == 200) {
        answer = json_parse(renewal.body, renewal.len);
        if (YAJL_IS_TRUE(json_get(answer, "revoke")))
            state = LEASE_REVOKED;
        yajl_tree_free(answer);
        lease_count(&renewal, renewal_sent);
    } else {
        renewal_due = MIN(renewal_sent + renewal.pause, util_now() + left / 2);
    }
    http_end(&renewal);
    renewing = false;
    return state;
}

/* The claim is lost, or released. */
void lease_forget(void)
{
    http_end(&renewal);
    renewing = false;
    lease->token[0] = '\0';
}

/* Releases the claim, or leaves the claim to end by itself at a later time.
 * Returns false if the claim was gone before.  A release without an answer is
 * no error, because the lease ends by itself. */
bool lease_release(int64_t keep_until)
{
    const int64_t end = util_now() + LEASE_RELEASE;
    bool held = true, first = true;
    int64_t left, kept, until;
    http_call_t call;
    yajl_val answer;

    http_end(&renewal);
    for (;;) {
        left = keep_until - util_now();
        call = lease_new_call(left > 0 ? "PUT" : "DELETE", LEASE_CALL);
        if (left > 0)
            http_add(&call, HTTP_QUERY, "ttl=%" PRId64 "ms", left);
        http_call(&call, NULL);

        if (call.status == 200 || call.status == 204) {
            answer = json_parse(call.body, call.len);
            kept = json_number(answer, "ttl_ms", left);
            yajl_tree_free(answer);
            if (kept < left)
                util_log("%s is kept for %" PRId64 " ms only, the gateway says"
                         " so", lock_url, kept);
            break;
        }
        if (lease_is_gone(call.status)) {
            held = !first;      /* the try before may have released the claim */
            break;
        }
        until = util_now() + call.pause;
        if (until >= end || !lease_may_change(call.status)) {
            util_log("no answer to the release, so the lock is free when its"
                     " lease is over: %s", http_describe(&call));
            break;
        }
        http_end(&call);
        while (util_now() < until)
            http_wait(NULL, 0, until);
        first = false;
    }
    lease_forget();
    http_end(&call);
    return held;
}
