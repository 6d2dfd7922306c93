
/*
 * Users that hold a lock as long as a connection lasts, as in http/stream.c.
 *
 * The hold ends when the user hangs up, the worker is gone, or the user is told
 * that the claim is lost; the hold has a lease only if u->leased.
 */


#include "gsim_user.h"


static void gsim_user_hang_up(void *data);


void
gsim_user_bind(gsim_user_t *u, zkl_acquire_t *acquire,
    zkl_claim_data_t *cdata)
{
    acquire->terms.bound = 1;
    acquire->terms.leased = u->leased;
    acquire->event = gsim_user_event_told;

    if (!u->leased) {
        cdata->ttl = 0;
    }
}


void
gsim_user_bound(gsim_user_t *u, zkl_claim_t *claim)
{
    u->bound = claim;
    u->binder = u->process;
    u->alive = gsim_now;
}


void
gsim_user_event_told(void *data, zkl_claim_t *claim, zkl_event_e event,
    const char *reason)
{
    gsim_user_t *u = data;

    if (event == ZKL_EVENT_WAITS) {

        if (u->claim != NULL && u->claim != claim) {
            gsim_violation("%s is told that another claim waits", u->name);
        }

        return;
    }

    if (u->bound == NULL) {

        /* the user was not told of the grant so far */

        return;
    }

    gsim_say("%s hears of %s: %d, %s", u->name, u->hold->path, event,
             reason ? reason : "");

    if (event != ZKL_EVENT_LOST) {
        return;
    }

    gsim_count.lost++;

    u->bound = NULL;
    u->hold->released = 1;

    if (u->call == NULL && !u->calls) {
        gsim_user_idle(u);
    }
}


int
gsim_user_unbind(gsim_user_t *u)
{
    if (u->bound == NULL) {
        return 0;
    }

    u->process = u->binder;
    u->hold->released = 1;

    if (!gsim_user_serve(u, gsim_user_hang_up)) {
        gsim_user_next(u, 5 * GSIM_MS);
    }

    return 1;
}


static void
gsim_user_hang_up(void *data)
{
    gsim_user_t *u = data;

    zkl_claim_t  *claim;

    claim = u->bound;

    if (claim == NULL) {
        return;
    }

    gsim_say("%s hangs up", u->name);
    gsim_count.hung_up++;

    u->bound = NULL;
    u->hold->hung = gsim_now;
    gsim_user_idle(u);

    zkl_claim_abandon(claim);
}


/* The worker is dead, and the user's connection closed. */

void
gsim_user_cut_off(gsim_user_t *u)
{
    gsim_say("%s has lost the connection that held %s", u->name,
             u->hold->path);

    u->bound = NULL;
    u->hold->released = 1;

    if (u->call == NULL && !u->calls) {
        gsim_user_idle(u);
    }
}


/* Checks that the user is told in time when the znode is gone. */

void
gsim_user_check_bound(gsim_user_t *u)
{
    gsim_process_t  *p;

    p = u->binder;

    if (u->hold->released
        || (u->hold->node->deleted == GSIM_NEVER && !u->hold->session->over)
        || gsim_stands(p) || p->in_turn)
    {
        u->alive = gsim_now;
    }

    if (gsim_now - u->alive > GSIM_TOLD) {
        gsim_violation("%s does not hear that %s is lost", u->name,
                       u->hold->path);
    }
}
