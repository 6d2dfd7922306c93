/* The claim, by the rules of the careful holder in docs/clients.md:
 *
 *     acquire    POST with a key, by which a repeat makes no second claim,
 *                repeated while --wait lasts.  A grant that may be a while old
 *                is renewed before it counts.
 *     step       PUT at a third of the lease, which counts from before the last
 *                request that was confirmed.  404 and 410 are the loss, and all
 *                else is repeated while the lease lasts.
 *     release    DELETE, repeated for ten seconds
 *     take back  POST and DELETE of a claim of which no answer has told
 *
 * A process has one claim at a time, in the lease_t that the caller owns. */

#include "zk-lock.h"

#define LEASE_PATIENCE  10000   /* ms that an answer takes beside the wait */
#define LEASE_CALL      5000    /* ms for a release */
#define LEASE_RELEASE   10000   /* ms that a release is repeated */
#define LEASE_RESERVE   2000    /* ms for delays, of machine and gateway */

static const options_t *opt;
static const char *lock_url;
static lease_t *lease;
static wait_pt waiting;                 /* NULL: nothing interrupts */

/* the renewal; without a URL there is none */
static http_call_t renewal;
static int64_t renewal_sent, renewal_due;

void lease_open(const options_t *options, const char *lock, lease_t *shared,
                wait_pt wait)
{
    opt = options;
    lock_url = lock;
    lease = shared;
    waiting = wait;
}

/* An acquire, to be ended by http_end(), that waits, or whose wait is -1: a
 * look at the key's claim, of which the gateway tells also while it waits. */
static http_call_t lease_post(int64_t wait)
{
    http_call_t call = http_new("POST", lock_url, wait < 0 ? LEASE_CALL
                                : wait + LEASE_PATIENCE);
    call.last = true;
    http_head(&call, "Idempotency-Key: %s", lease->key);
    http_query(&call, "ttl=%" PRId64 "ms", opt->ttl);
    http_query(&call, "mode=%s", opt->permits ? "semaphore" : opt->shared
               ? "shared" : opt->command == JOIN ? "member" : "exclusive");
    if (opt->permits)
        http_query(&call, "permits=%" PRId64, opt->permits);
    if (*opt->owner)
        http_query(&call, "owner=%s", opt->owner);
    if (wait >= 0) {
        http_query(&call, "durable=1");
        http_query(&call, "wait=%" PRId64 "ms", wait);
    } else {
        http_head(&call, "Prefer: respond-async");
    }
    return call;
}

/* A call about the claim that is known. */
static http_call_t lease_about(const char *method, int64_t timeout)
{
    http_call_t call = http_new(method, lock_url, timeout);
    http_head(&call, "Lock-Token: %s", lease->token);
    return call;
}

/* Takes the token of an answer; false: there is none. */
static bool lease_take(const http_call_t *call)
{
    const char *token = http_header(call, "Lock-Token");
    const char *fencing = http_header(call, "Lock-Fencing-Token");
    if (!token || strlen(token) >= TOKEN_MAX)
        return false;
    snprintf(lease->token, TOKEN_MAX, "%s", token);
    snprintf(lease->fencing, TOKEN_MAX, "%s", fencing ? fencing : "");
    return true;
}

/* Counts the lease, never as longer than asked for; false: it was cut. */
static bool lease_count(http_call_t *call, int64_t sent)
{
    yajl_val answer = json_parse(call->body, call->len);
    int64_t ttl = json_number(answer, "ttl_ms", opt->ttl);
    int64_t left = json_number(answer, "expires_in_ms", ttl);
    yajl_tree_free(answer);
    lease->ttl = left < opt->ttl ? left : opt->ttl;
    lease->sent = sent;
    renewal_due = sent + lease->ttl / 3;
    return ttl >= opt->ttl;
}

/* When the command has to be ended, so that it ends while the lease lasts. */
int64_t lease_deadline(void)
{
    return lease->sent + lease->ttl - opt->grace - LEASE_RESERVE;
}

/* After a grant: NULL if the claim is held from now on, or why it is not.  An
 * answer that came late, or to a repeat, does not tell when the lease began. */
static const char *lease_confirm(http_call_t *call, int64_t sent)
{
    if (call->status != 201 || now() - sent >= opt->ttl / 3) {
        http_end(call);
        sent = now();
        *call = lease_about("PUT", opt->ttl / 3);
        http_call(call, NULL);
        if (call->status == 404 || call->status == 410)
            lease->token[0] = '\0';
        if (call->status != 200)
            return "the grant came too late";
    }
    if (!lease_count(call, sent))
        return "the gateway cuts the lease of --ttl";
    return now() < lease_deadline() ? NULL : "the grant came too late";
}

/* Whether a repeat may get another answer; a 409 may be one of permits. */
static bool lease_may_change(long status)
{
    return status < 300 || status >= 500 || status == 423 || status == 429
           || (status == 409 && opt->permits);
}

/* Returns 0 if the claim is held, -1 if the wait was interrupted, and else an
 * exit status, and says why.  After all but 0 lease_take_back() is due. */
int lease_acquire(void)
{
    int64_t end = now() + opt->wait, sent, until;
    http_call_t call;
    const char *why;
    int rc = -1;
    uint64_t random[2];
    *lease = (lease_t) { .sent = 0 };
    if (getrandom(random, sizeof(random), 0) != sizeof(random)) {
        say("no random number");
        return EXIT_SYSTEM;
    }
    snprintf(lease->key, sizeof(lease->key), "%016" PRIx64 "%016" PRIx64,
             random[0], random[1]);

    for (;;) {
        sent = now();
        call = lease_post(end > sent ? end - sent : 0);
        http_call(&call, waiting);
        if (call.sent && (!call.status || call.status == 502
                          || call.status == 504))
            lease->unsure = true;
        if (!call.done)
            break;

        why = NULL;
        if ((call.status == 200 || call.status == 201) && lease_take(&call)) {
            why = lease_confirm(&call, sent);
            if (!why) {
                lease->unsure = false;
                say_anew();
                rc = 0;
                break;
            }
        }

        until = now() + call.pause;
        if ((!why && !lease_may_change(call.status)) || until >= end) {
            rc = why ? EXIT_UNREACHED : http_exit_status(call.status);
            if (rc != EXIT_TAKEN)
                say_once("no lock from %s: %s", lock_url,
                         why ? why : http_told(&call));
            else if (!opt->quiet)
                say_once("%s is taken", lock_url);
            break;
        }
        http_end(&call);
        while (now() < until)
            if (waiting(until))
                return -1;
    }
    http_end(&call);
    return rc;
}

/* Ends a claim that is not held, if there may be one.  Takes as long as a
 * release, and five seconds more at most. */
void lease_take_back(void)
{
    if (!lease->token[0] && lease->unsure) {
        http_call_t call = lease_post(-1);
        http_call(&call, NULL);
        lease_take(&call);
        http_end(&call);
    }
    if (lease->token[0])
        lease_release(0);
    lease->unsure = false;
}

/* When lease_step() has to send a renewal. */
int64_t lease_next(void)
{
    return renewal.url ? NEVER : renewal_due;
}

/* Sends a renewal that is due, and takes the answer.  Does not wait. */
lease_state_e lease_step(void)
{
    http_call_t *call = &renewal;
    lease_state_e state = LEASE_HELD;
    if (!call->url && now() >= renewal_due) {
        renewal_sent = now();
        *call = lease_about("PUT", lease->ttl / 3);
        http_start(call);
    }
    if (!call->url || !call->done)
        return LEASE_HELD;

    if (call->status == 404 || call->status == 410) {
        state = LEASE_LOST;
    } else if (call->status == 200) {
        yajl_val answer = json_parse(call->body, call->len);
        if (YAJL_IS_TRUE(json_get(answer, "revoke")))
            state = LEASE_ASKED_FOR;
        yajl_tree_free(answer);
        lease_count(call, renewal_sent);
    } else {
        renewal_due = now() + (call->pause < lease->ttl / 3 ? call->pause
                                                          : lease->ttl / 3);
    }
    http_end(call);
    return state;
}

/* The claim is lost, or released. */
void lease_forget(void)
{
    http_end(&renewal);
    lease->token[0] = '\0';
}

/* Releases the claim, or lets it be there until then.  Returns false if it was
 * gone before.  A release that is not confirmed is no error, because the lease
 * ends by itself. */
bool lease_release(int64_t keep_until)
{
    int64_t end = now() + LEASE_RELEASE, left, until;
    bool held = true, again;
    http_call_t call;
    http_end(&renewal);

    for (again = false;; again = true) {
        left = keep_until - now();
        call = lease_about(left > 0 ? "PUT" : "DELETE", LEASE_CALL);
        if (left > 0)
            http_query(&call, "ttl=%" PRId64 "ms", left);
        http_call(&call, NULL);

        if (call.status == 200 || call.status == 204) {
            yajl_val answer = json_parse(call.body, call.len);
            int64_t ms = json_number(answer, "ttl_ms", left);
            yajl_tree_free(answer);
            if (ms < left)
                say("%s is kept for %" PRId64 " ms only, the gateway says so",
                    lock_url, ms);
            break;
        }
        if (call.status == 404 || call.status == 410) {
            held = again;               /* perhaps released by the try before */
            break;
        }
        until = now() + call.pause;
        if (!lease_may_change(call.status) || until >= end) {
            say("no answer to the release, so the lock is free when its lease"
                " is over: %s", http_told(&call));
            break;
        }
        http_end(&call);
        while (now() < until)
            http_wait(NULL, 0, until);
    }
    lease_forget();
    http_end(&call);
    return held;
}
