
/*
 * The real core/follow.c, included unchanged, so that what is followed can be
 * looked at.
 *
 * A lock that has followers is being read, or is to be read soon, or has a
 * watch that will tell of the next change: else no later change is told.
 */


#include "../../src/core/follow.c"

#include "gsim.h"


static void gsim_follow_check_node(gsim_process_t *p, int64_t id,
    ngx_rbtree_node_t *node);


void
gsim_follow_check(gsim_process_t *p)
{
    zkl_slot_t    *slot;
    zkl_worker_t  *worker;

    worker = p->worker;
    slot = worker->zone->own;

    if (zkl_session_connected(worker->session)
        && slot->keyed
        && gsim_client_flights(p, slot->key.id) >= 0)
    {
        gsim_follow_check_node(p, slot->key.id, worker->followed.root);
    }
}


static void
gsim_follow_check_node(gsim_process_t *p, int64_t id, ngx_rbtree_node_t *node)
{
    char             path[GSIM_PATH];
    zkl_followed_t  *followed;

    if (node == p->worker->followed.sentinel) {
        return;
    }

    followed = (zkl_followed_t *) node;

    memcpy(path, followed->sn.str.data, followed->sn.str.len);
    path[followed->sn.str.len] = '\0';

    gsim_count.followed++;

    if (ngx_queue_empty(&followed->follows)) {
        gsim_violation("process %d reads %s, which has no followers",
                       (int) p->pid, path);
    }

    if (followed->op == NULL && !followed->timer.timer_set
        && !gsim_client_has(p, id, path, GSIM_EXISTS)
        && !gsim_client_has(p, id, path, followed->node ? GSIM_GET
                                                        : GSIM_LIST))
    {
        gsim_violation("nothing tells process %d of the next change of %s, "
                       "which has followers", (int) p->pid, path);
    }

    gsim_follow_check_node(p, id, node->left);
    gsim_follow_check_node(p, id, node->right);
}
