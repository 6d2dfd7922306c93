#!/usr/bin/python3
"""Breaks src/ in one place at a time, and has the simulation find the bug.

usage: mutants.py BUILD [NAME]...

BUILD has the objects of gateway_sim.  Each mutant is a file of src/ with one
text replaced, compiled and linked with the other files; MUTANT_CC and
MUTANT_LINK say how.  Line ends and indentation of the text do not matter.
Failures are a text that is not there exactly once, a mutant that does not
compile, and a mutant that is not found within the given histories.  A mutant
counts as found by a history that the program without the mutant passes.
"""

import concurrent.futures
import glob
import os
import re
import shlex
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), '..', 'lib'))

import planted  # noqa: E402

# name, file, the text, the replacement, and the number of histories that find
# the mutant; or a trait of the histories and the number, for rare harm

LIBRARY = 'zk/client.c'

# files that a file of t/gsim takes in
TAKEN_IN = {LIBRARY: 'gsim_library.c', 'zk/session.c': 'gsim_session.c',
            'core/follow.c': 'gsim_follow.c'}

GRANT_THE_NEXT = (
    '    zkl_entry_t  *waiter, *blocker;\n\n'
    '    (void) zkl_view_next(&lock->view, &waiter, &blocker);\n\n'
    '    if (blocker == &other->entry) {\n'
    '        (void) zkl_claim_grant(zkl_claim_of(waiter));\n'
    '    }\n\n'
)

MUTANTS = [
    ('who waits is told before its claim is durable',
     'core/claim.c',
     'zkl_claim_durable(claim);\n        return NGX_OK;',
     'zkl_claim_durable(claim);', 2000),

    ('a lease that is held for long is not made durable',
     'core/claim.c:zkl_claim_proceed_held',
     '        zkl_claim_durable(claim);\n', '', 2000),

    ('a durable claim is lost with its session',
     'core/claim.c:zkl_claim_session_over',
     '!claim->entry.waiting && (claim->lasting == ZKL_DURABLE\n',
     '0 && (claim->lasting == ZKL_DURABLE\n', 12000),

    ('the fencing token of a durable claim is that of its znode',
     'core/replace.c',
     'cdata.czxid = op->czxid;', 'cdata.czxid = 0;', 12000),

    ('others take a claim that is made durable for released',
     'base/view.c',
     'if (entry->origin == ZKL_FOREIGN\n'
     '        && zkl_view_place(entry) <= view->complete_through\n',
     'if (0\n', 12000),

    ('the lock is not bumped when a claim is made durable', LIBRARY,
     """        } else if (op->type == ZKL_OP_SET) {
""",
     """        } else if (batch->type == ZKL_OP_RENAME && n == 0
                   && op->type == ZKL_OP_SET)
        {
            zoo_check_op_init(&zops[n++], (char *) op->path.data,
                              op->version);

        } else if (op->type == ZKL_OP_SET) {
""", 12000),

    ('a claim is made durable by whatever version',
     'zk/session.c:zkl_op_rename',
     'zkl_op_new(s, ZKL_OP_DELETE, dir, name, NULL),\n'
     '                    version);',
     'zkl_op_new(s, ZKL_OP_DELETE, dir, name, NULL),\n'
     '                    -1);', 60000),

    ('the lease of a claim that is taken over counts from before',
     'shm/record.c',
     'zkl_record_keep(cell, ttl, zkl_now() + ttl);',
     'zkl_record_keep(cell, ttl, zkl_now() + ttl / 2);',
     12000),

    ('a claim that another session may count is released in its old record',
     'core/serve.c:zkl_serve_release',
     'if (zkl_serve_doubts(claim, served))',
     'if (0)', ('--rich', 10000)),

    ('an open record tells', 'core/call.c',
     '&& record.state != ZKL_RECORD_OPEN\n', '', ('--rich', 12000)),

    ('a forsaken record is that of a claim that ended',
     'shm/record.c:zkl_record_get',
     '|| copy->ending == ZKL_ENDING_FORSAKEN\n', '', ('--rich', 60000)),

    ('the data of a durable claim forget a longer time',
     'core/serve.c:zkl_serve',
     'return zkl_claim_told(claim, &served->listener) == NGX_AGAIN',
     'return 0', 5000),

    ('a deleted event of a sibling is believed', 'core/lock.c',
     'if (deleted && entry->origin == ZKL_FOREIGN) {',
     'if (deleted) {', 12000),

    ('a record that is taken over is found half made',
     'shm/record.c:zkl_record_adopt',
     'cell->seq = child->seq;\n\n    zkl_record_start(zone, *record);',
     'zkl_record_start(zone, *record);\n    cell->seq = child->seq;', 60000),

    ('a renewal that a dead worker had not heard of is lost',
     'core/claim.c:zkl_claim_secure',
     '    (void) zkl_record_renewed(claim->cell,',
     '    if (0) (void) zkl_record_renewed(claim->cell,', 2000),

    ('a gap is trusted', 'base/view.c',
     'if (!backwards && entry->seq == view->complete_through + 1) {',
     'if (!backwards) {', 2000),

    ('contiguity is kept over a reaped parent', 'core/lock.c',
     'op->rc == ZKL_OK && op->czxid < lock->witness)',
     'op->rc == ZKL_OK)', 30000),

    ('a reader passes a writer', 'base/view.c',
     'return ahead != ZKL_READ || behind != ZKL_READ;',
     'return ahead != ZKL_WRITE || behind != ZKL_READ;', 2000),

    ('nothing is listed after a gap', 'base/view.c',
     'if (zkl_view_place(*waiter) > view->complete_through) {\n'
     '        return ZKL_COMPLETE;',
     'if (zkl_view_place(*waiter) > view->complete_through) {\n'
     '        return ZKL_NOTHING;', 2000),

    ('the watch moves past a live claim', 'core/lock.c',
     'if (deleted && entry->origin == ZKL_FOREIGN) {',
     'if (1) {', 12000),

    ('nothing is synced behind a new connection',
     'zk/session.c',
     '    s->barrier = 1;\n'
     '    zkl_session_barrier(s);\n'
     '\n'
     '    if (s->barrier) {\n'
     '        return;\n'
     '    }\n'
     '\n',
     '',
     2000),

    ('granted without a look at the session', 'zk/session.c',
     'return s->state == ZKL_CONNECTED\n'
     '           && zkl_ahead(*s->alive);',
     'return s->state == ZKL_CONNECTED;', 12000),

    ('who has left is handed the lock', 'core/claim.c:zkl_claim_leave',
     'zkl_claim_end(claim, outcome);', 'claim->ttl = 1000000;', 2000),

    ('a lease ends though another gateway renewed it',
     'core/claim.c:zkl_claim_send_delete',
     'any = (claim->state == ZKL_DELETE',
     'any = (claim->state != ZKL_TAKE', 2000),

    ('the living are adopted', 'shm/zone.c',
     '            || !zkl_layout_dead(keeper, 0)\n', '', 2000),

    ('a delete is not sent again', 'core/claim.c',
     '        if (claim->op == NULL) {\n'
     '            zkl_claim_delete(claim, 0);\n'
     '        }\n', '', 5000),

    ('a create is sent again blindly', 'core/claim.c',
     'case ZKL_UNKNOWN:\n'
     '        zkl_claim_recover(claim);\n        break;\n',
     'case ZKL_UNKNOWN:\n', 5000),

    ('the doorbell is lost', 'shm/doorbell.c',
     'one = 1;\n', 'one = 1;\n\n    return;\n', 3000),

    ('what is held goes with its worker', 'core/adopt.c:zkl_adopt_record',
     'record, !lease,', 'record, 1,', 2000),

    ('the tokens of a transaction fall',
     'core/claim.c',
     'return czxid * 256 + (int64_t) index;',
     'return czxid * 256 + 255 - (int64_t) index;', 60000),

    ('a held session is closed in a reload', 'core/worker.c',
     '\n             && (ngx_terminate || !needed);', ';', 5000),

    ('granted by a gateway that ends', 'core/worker.c',
     'return worker->leaving && '
     '!zkl_zone_outlives(worker->zone);',
     'return 0;', 5000),

    ('old workers do not know that their heirs leave',
     'shm/zone.c',
     'map->over = map->reloads;', '', 60000),

    ('children of a list are leaked', 'zk/session.c',
     '    free(op->children);\n', '', 2000),

    # bugs that this simulation has found

    ('refused again in the same turn', 'zk/session.c',
     '    ngx_queue_insert_tail(&s->failed, &op->queue);\n\n',
     '    ngx_queue_insert_tail(&s->failed, &op->queue);\n\n'
     '    ngx_post_event(&s->flush, &ngx_posted_events);\n'
     '    return;\n\n', 80000),

    ('a repeat joins whom it sees first', 'core/claim.c',
     'claim->duplicate = child;\n            seq = child.seq;\n',
     'if (seq == claim->entry.seq) {\n claim->duplicate = child;\n'
     '            }\n            seq = child.seq;\n', 12000),

    ('a renewal is known before it counts', 'shm/record.c',
     'zkl_record_extend(cell, ttl, grace, seen);\n\n'
     '    cell->renewals = renewals;\n',
     'cell->renewals = renewals;\n\n'
     '    zkl_record_extend(cell, ttl, grace, seen);\n', 20000),

    ('a worker leaves whom it owes an answer', 'core/worker.c',
     '} else if (worker->nuntold != 0) {', '} else if (0) {', 12000),

    ('who only looks makes a lease shorter', 'shm/record.c',
     '&& ttl != said->ttl\n', '\n', 12000),


    ('held twice, released once', 'core/serve.c',
     'if (several && claim->state == ZKL_HELD) {', 'if (0) {', 500),

    ('held twice, released once elsewhere', 'core/call.c',
     '} else if ((cdata.index >= 0 && cdata.holds > 1)\n',
     '} else if ((0)\n', 500),

    ('a connection is held by nobody', 'core/adopt.c',
     'HELD\n               && !record->bound)', 'HELD)', 2000),

    ('an expiry in vain counts', 'core/claim.c:zkl_claim_reread_handler',
     '        claim->lost = 0;\n', '', 4000),

    ('a waiter that was deleted by hand is taken for released',
     'core/claim.c:zkl_claim_removed', '&& zkl_claim_known(claim))', ')',
     ('--rich', 2000)),

    ('an ask that got no answer is not begun again',
     'core/call.c:zkl_call_failed',
     'call->step = ZKL_STEP_BEGIN;', '', 12000),

    ('an ask waits without an end', 'core/call.c',
     'ngx_add_timer(&call->over, timeout);', '',
     4000),

    ('an acquire waits without an end', 'core/claim.c',
     '{\n            zkl_claim_leave(claim, ZKL_UNREACHABLE);\n'
     '            return;\n        }\n\n'
     '        ngx_add_timer(ev, claim->terms.once',
     '{\n            return;\n        }\n\n'
     '        ngx_add_timer(ev, claim->terms.once', 4000),

    ('a claim that is to be deleted is waited for without an end',
     'core/claim.c',
     'if (claim->timer.timer_set && claim->handler == NULL) {',
     'if (claim->timer.timer_set) {', 12000),

    ('a lease that is over before it is durable is told as cancelled',
     'core/claim.c',
     'claim->outcome = ZKL_UNREACHABLE;\n    }\n\n'
     '    if (claim->handler != NULL) {',
     '}\n\n    if (claim->handler != NULL) {', 30000),

    # until when a session lives

    ('a leader that stood still has heard of each write',
     'zk/session.c',
     'if (!s->told && now - op->sent < s->timeout / 8) {',
     'if (!s->told) {', ('--sessions', 400000)),

    ('a session that is over goes on while it is connected',
     'zk/session.c:zkl_session_heard',
     'if (zkl_client_expired(op->code) && s->events != NULL) {',
     'if (0) {', ('--restored', 8000)),

    ('two writes prove that a session lives',
     'zk/session.c:zkl_session_committed',
     '        s->proves = now;\n'
     '        zkl_session_barrier(s);\n'
     '        return;\n',
     '',
     ('--sessions', 400000)),

    ('the newest write proves that a session lives',
     'zk/session.c',
     '    s->proves = now + s->timeout / 4 + '
     's->timeout / 20;',
     '    s->proves = zkl_now();',
     ('--sessions', 30000)),

    ('a session lives from its last write on',
     'zk/session.c',
     'until = zkl_session_until(s, s->touched);',
     'until = zkl_session_until(s, op->sent);',
     ('--sessions', 12000)),

    ('the quarter counts from the send of a write that was slow',
     'zk/session.c:zkl_session_committed',
     's->proves = now +', 's->proves = op->sent +',
     ('--sessions', 12000)),

    ('clocks run alike',
     'zk/session.c:zkl_session_until',
     'since + s->timeout - s->timeout / 20', 'since + s->timeout',
     ('--sessions', 4000)),

    ('a connection breaks when the loop hears of that',
     'zk/session.c:zkl_session_suspended_handler',
     'zkl_session_state(s, ZKL_SUSPENDED);',
     'zkl_session_state(s, ZKL_SUSPENDED);\n'
     '    s->apart = zkl_now();',
     ('--sessions', 4000)),

    ('a session that is back counts from when the loop hears of that',
     'zk/session.c:zkl_session_connected_handler',
     's->touched = s->apart;', 's->touched = zkl_now();',
     ('--sessions', 4000)),

    ('a connection is there when the loop reads an answer',
     'zk/session.c:zkl_session_heard',
     's->apart = op->sent;', 's->apart = s->replied;',
     ('--sessions', 12000)),

    ('any answer proves that a session lives',
     'zk/session.c:zkl_session_heard',
     '    if (op->type > ZKL_OP_BARRIER) {\n        return;\n',
     '    if ((ngx_msec_int_t) (op->sent + s->timeout - '
     's->timeout / 3 - *s->alive) > 0) {\n'
     '        *s->alive = op->sent + s->timeout - s->timeout / 3;\n'
     '    }\n'
     '    if (op->type > ZKL_OP_BARRIER) {\n        return;\n',
     ('--sessions', 12000)),

    ('any answer does, with an eighth as the margin',
     'zk/session.c:zkl_session_heard',
     '    if (op->type > ZKL_OP_BARRIER) {\n        return;\n',
     '    if ((ngx_msec_int_t) (op->sent + s->timeout - '
     's->timeout / 8 - *s->alive) > 0) {\n'
     '        *s->alive = op->sent + s->timeout - s->timeout / 8;\n'
     '    }\n'
     '    if (op->type > ZKL_OP_BARRIER) {\n        return;\n',
     ('--sessions', 20000)),

    ('a barrier is a sync', 'zk/client.c:zkl_client_submit',
     '        n = zkl_client_fill(h, op, zops);',
     '    void done(int rc, const char *value, const void *data)\n'
     '    {\n'
     '        zkl_client_done_foreign(rc, data);\n'
     '    }\n\n'
     '    if (op->type == ZKL_OP_BARRIER) {\n'
     '        op->gate = 0;\n'
     '        return zoo_async(h->zh, (char *) op->path.data, done, op);\n'
     '    }\n\n'
     '        n = zkl_client_fill(h, op, zops);',
     ('--sessions', 12000)),

    # the one-node layout

    ('the znode of another claim is taken for the own',
     'core/node.c:zkl_node_check',
     'if (op->rc == ZKL_OK && claim->lock->node && !zkl_node_is(&id, op)) {',
     'if (0) {',
     ('--node', 1000)),

    ('a call takes the znode of another claim for the own',
     'core/node.c:zkl_node_asked',
     'return zkl_node_is(&call->token.id, op);',
     'return 1;',
     ('--node', 1000)),

    ('a one-node claim is deleted whatever the version',
     'core/claim.c:zkl_claim_send_delete',
     'any ? -1',
     '(claim->state == ZKL_DELETE) ? -1',
     ('--node', 4000)),

    ('a one-node claim that is not watched is deleted without a look',
     'core/claim.c:zkl_claim_delete',
     'if (!claim->lock->node || claim->watched) {',
     'if (1) {',
     ('--node', 1000)),

    ('the end of a znode wakes no claim',
     'core/node.c:zkl_node_changed',
     '    lock->waits = 0;\n',
     '',
     ('--node', 100)),

    ('a claim contends beside a claim that may have the znode',
     'core/node.c:zkl_node_turn',
     'if (claim->state != ZKL_START) {',
     'if (0) {',
     ('--node', 1000)),

    ('a read that found no znode is not followed by a create',
     'core/node.c:zkl_node_watch_handler',
     '    case ZKL_NO_NODE:\n        break;\n',
     '    case ZKL_NO_NODE:\n        goto done;\n',
     ('--node', 1000)),

    ('a one-node claim that waits too long is not told so',
     'core/node.c:zkl_node_resolve',
     'if (zkl_claim_expired(claim) && taken && ready) {',
     'if (0) {',
     ('--node', 100)),

    # servers that have lost data

    ('no other handle asks for a session that is refused',
     'zk/session.c',
     'if (s->state == ZKL_SUSPENDED && now - s->since >= s->timeout\n',
     'if (0\n',
     ('--restored', 100)),

    ('the session of an older copy goes on',
     'zk/session.c:zkl_session_landed',
     'if (op->gate && op->version <= s->sets) {',
     'if (0) {',
     ('--restored', 2000)),

    ('a release ends the holds that another session has counted',
     'core/claim.c:zkl_claim_take_read',
     'if (op->version != (int32_t) claim->cell->version\n',
     'if (0\n',
     ('--rich', 300000)),

    ('a session whose gate is gone goes on',
     'zk/session.c:zkl_session_ungated',
     'if (s->gated) {',
     'if (0) {',
     ('--restored', 2000)),

    ('a session without memory for the gate makes claims',
     'zk/session.c:zkl_session_connected_handler',
     'if (gate == NULL) {',
     'if (0) {',
     ('--rich --shortage', 1000)),

    ('another handle is taken for having the watches',
     'zk/session.c',
     'if (another) {',
     'if (0) {',
     ('--restored', 20000)),

    ('a claim of before is taken for the claim with its number',
     'core/worker.c',
     'zkl_seq_index_clear(worker->zone);',
     '',
     ('--restored', 5000)),

    ('a change counts as handled before ZooKeeper lost the change',
     'core/lock.c:zkl_lock_session_over',
     'lock->handled = 0;',
     '',
     ('--restored', 20000)),

    ('a session is given up when no server takes it back',
     'zk/session.c',
     'zkl_session_end_handle(s);\n        zkl_session_start(s);',
     'zkl_session_end_handle(s);\n'
     '        ngx_post_event(&s->over, &ngx_posted_events);',
     4000),

    # tokens, leases, late requests, keys

    ('a claim that is found has the token of another one',
     'core/claim.c:zkl_claim_found_handler',
     '(cdata.index > 0) ? cdata.index : 0;',
     '0;',
     1000),

    ('a claim that queues again has no duplicates',
     'core/claim.c:zkl_claim_note',
     'claim->single = !claim->terms.keyed;',
     'claim->single |= !claim->terms.keyed;',
     6000),

    # what a release tells

    ('a release is told as gone if its answer was lost',
     'core/call.c:zkl_call_missing',
     '            zkl_call_deleted(call);\n            return;\n',
     '            call->step = ZKL_STEP_OP;\n'
     '            zkl_call_tell(call, ZKL_CALL_GONE);\n            return;\n',
     1000),

    ('what is missing was released',
     'core/call.c:zkl_call_missing',
     '} else {\n        zkl_call_tell(call, ZKL_CALL_GONE);',
     '} else {\n        zkl_call_tell(call, ZKL_CALL_OK);',
     500),

    ('a doubtful delete was that of another gateway',
     'core/claim.c',
     'claim->lost |= !claim->doubtful;',
     'claim->lost = 1;',
     4000),

    ('a dead worker has not released',
     'core/call.c',
     '    call->tries += (state == ZKL_ERRAND_ENDS);\n', '',
     12000),

    # subscriptions

    ('no subscription hangs at a sibling ahead',
     'core/lock.c:zkl_lock_watch',
     'zkl_worker_subscribe(lock->worker, &other->sub, record.id.record);',
     '', 1000),

    # turns

    ('a list in flight is shared', 'zk/turns.c:zkl_turns_add',
     'if (list->bytes != 0) {', 'if (0) {', 4000),

    ('the next list of a path is forgotten', 'zk/turns.c:zkl_turns_end',
     'return op->later;', 'return NULL;', 500),

    # roll-backs

    ('the culprit goes with the others again',
     'zk/session.c',
     '        culprits += !op->gather;\n',
     '        culprits += !op->gather;\n'
     '        op->gather = 1;\n',
     500),

    ('a culprit is told that it was done',
     'zk/session.c',
     '        culprits += !op->gather;\n',
     '        if (!op->gather) {\n'
     '            culprits++;\n'
     '            zkl_session_fail(s, op, ZKL_OK);\n'
     '            continue;\n'
     '        }\n',
     500),

    ('a culprit has found nothing',
     'zk/session.c',
     '        culprits += !op->gather;\n',
     '        if (!op->gather) {\n'
     '            culprits++;\n'
     '            zkl_session_fail(s, op, ZKL_NO_NODE);\n'
     '            continue;\n'
     '        }\n',
     500),

    # heirs and records

    ('a record begins in the last cell of a chunk',
     'shm/record.c',
     'if (k + n <= ZKL_CHUNK\n',
     'if (k + n - 1 <= ZKL_CHUNK\n', 12000),

    # grants told elsewhere

    ('a grant is not written down for other gateways',
     'core/claim.c:zkl_claim_show',
     'if (!cdata.async) {',
     'if (1) {',
     4000),

    ('a grant whose write failed is not written again',
     'core/claim.c:zkl_claim_remote',
     'if (cdata->async && !cdata->held && cdata->gate_len == 0) {',
     'if (0) {',
     4000),

    ('a claim that is first counts as held elsewhere before its grant',
     'core/call.c',
     '!cdata->async || cdata->held\n',
     '1 || cdata->held\n',
     4000),

    ('what a mark has hidden is not written as held',
     'shm/record.c',
     'cdata->held = 1;\n',
     '\n',
     4000),

    ('a grant told elsewhere counts as no renewal',
     'core/call.c:zkl_call_change',
     '(renews || call->type == ZKL_HOLD\n',
     '((asks && call->type == ZKL_HOLD)\n',
     500),

    # limits and ends

    ('a line has no limit',
     'core/claim.c',
     '           > claim->terms.max_queue)',
     '           > claim->terms.max_queue && 0)',
     1000),

    ('a line has room for one more',
     'core/claim.c',
     '           > claim->terms.max_queue)',
     '           > claim->terms.max_queue + 1)',
     1000),

    ('a line has room for one less',
     'core/claim.c',
     '           > claim->terms.max_queue)',
     '           >= claim->terms.max_queue)',
     500),

    ('a line is not counted',
     'core/claim.c',
     'return ahead > (int64_t) claim->terms.max_queue',
     'return 0 * (ahead > (int64_t) claim->terms.max_queue)',
     1000),

    ('the end of a wait is not noted',
     'core/claim.c',
     '    claim->time = zkl_claim_timed(claim) ? ZKL_TIME_OVER '
     ': ZKL_TIME_ABANDONED;\n'
     '\n'
     '    zkl_claim_resolve(claim);',
     '    zkl_claim_resolve(claim);',
     500),

    ('a wait is twice as long',
     'core/claim.c',
     'ngx_add_timer(&claim->timer, acquire->wait);',
     'ngx_add_timer(&claim->timer, 2 * acquire->wait);',
     500),

    # no claim is forgotten, and numbers in names prove nothing

    ('a number in a name is taken for given',
     'base/view.c:zkl_view_merge',
     '    view->complete_through = given - 1;\n',
     '    view->complete_through = (n != 0) ? children[n - 1].seq : -1;\n',
     4000),

    ('a claim is forgotten when its client leaves during the create',
     'core/claim.c:zkl_claim_leave',
     '            zkl_claim_end(claim, outcome);\n        }\n',
     '            zkl_claim_end(claim, outcome);\n'
     '        } else { zkl_claim_done(claim); }\n', 1000),

    ('a claim is forgotten when its delete gets no answer',
     'core/claim.c:zkl_claim_delete_handler',
     'case ZKL_OK:\n',
     'case ZKL_OK:\n    case ZKL_UNSENT:\n', 1000),

    ('a create without an answer did not happen',
     'core/claim.c:zkl_claim_create_handler',
     '    case ZKL_UNKNOWN:\n'
     '        zkl_claim_recover(claim);\n'
     '        break;\n\n'
     '    case ZKL_UNSENT:\n',
     '    case ZKL_UNKNOWN:\n    case ZKL_UNSENT:\n', 1000),

    # the queue: what a worker knows of the claims ahead

    ('a waiter is granted when the foreign claim ahead is gone',
     'core/lock.c:zkl_lock_vanished',
     '    zkl_lock_gone(lock, &other->entry);\n',
     GRANT_THE_NEXT + '    zkl_lock_gone(lock, &other->entry);\n',
     500),

    ("a waiter is granted when a sibling's claim ahead is gone",
     'core/lock.c:zkl_lock_watch',
     'if (record.state == ZKL_RECORD_ENDED) {\n',
     'if (record.state == ZKL_RECORD_ENDED) {\n' + GRANT_THE_NEXT,
     500),

    ('a new claim pins its znode for ever',
     'core/lock.c:zkl_lock_created',
     '    zkl_lock_doubt(lock);\n',
     '    lock->view.watched = 1;\n', 500),

    ('a change of the lock is not heard',
     'core/lock.c:zkl_lock_changed',
     '    lock->view.watched = 0;\n    lock->born = 0;\n',
     '    return;\n', 500),

    ('a view outlives its connection', 'core/worker.c:zkl_worker_suspended',
     '    zkl_worker_tell_locks(&worker->active, zkl_lock_forget);\n'
     '    zkl_worker_tell_locks(&worker->idle, zkl_lock_forget);\n', '', 10000),

    ('a lock that is forgotten keeps its view',
     'core/lock.c:zkl_lock_forget',
     '    lock->view.watched = 0;\n\n'
     '    zkl_view_forget(&lock->view, zkl_lock_gone, lock);\n',
     '', 4000),

    ('a writer that is gone has left no reader',
     'base/view.c:zkl_view_remove',
     'entry->mode == ZKL_WRITE || !view->watched', '!view->watched', 2000),

    ('the end of a foreign claim wakes no waiter',
     'core/lock.c:zkl_lock_vanished',
     '        zkl_lock_list(lock);\n    }\n\n    zkl_lock_post(lock);\n',
     '        zkl_lock_list(lock);\n    }\n', 1000),

    ('the end of a claim rings no sibling', 'shm/record.c:zkl_record_end',
     '    zkl_doorbell_watchers(zone->map, record, 1);\n',
     '    ngx_memzero((void *) cell->watchers, sizeof(cell->watchers));\n',
     1000),

    ('a claim that ended in a former lock is counted',
     'core/lock.c:zkl_lock_learn',
     '        || record.czxid <= lock->born || record.czxid >= claim->czxid)',
     '        || (rc != NGX_DONE\n'
     '            && (record.czxid <= lock->born\n'
     '                || record.czxid >= claim->czxid)))', 4000),

    ('a claim that is found does not wait',
     'core/claim.c:zkl_claim_recover',
     '    claim->entry.waiting = 1;\n', '', 2000),

    ("a dead worker's claim is gone", 'core/lock.c:zkl_lock_watch',
     'if (found == ZKL_FOUND_END) {',
     'if (found == ZKL_FOUND_END || found == ZKL_FOUND_ORPHAN) {',
     ('--rich', 4000)),

    ('a list shows no reader in the place of a mutex',
     'base/view.c:zkl_view_merge',
     '            if (zkl_view_match(entry, &children[i])) {\n',
     '            if (entry->mode == ZKL_MUTEX\n'
     '                && entry->origin == ZKL_FOREIGN\n'
     '                && children[i].mode == ZKL_READ)\n'
     '            {\n'
     '                children[i].gone = 1;\n'
     '            }\n\n'
     '            if (zkl_view_match(entry, &children[i])) {\n', 9000),

    ('a waiter for a permit watches a single claim',
     'base/view.c:zkl_view_blocker',
     '&& !ahead->watched && *watch == NULL)',
     '&& !ahead->watched && ahead == nearest)', 2000),

    ('a semaphore has a permit too many', 'base/view.c:zkl_view_capacity',
     'zkl_mode_permits(mode) : 1;', 'zkl_mode_permits(mode) + 1 : 1;', 1000),

    ('a claim of another use is granted', 'core/lock.c:zkl_lock_step',
     'return zkl_claim_conflict(zkl_claim_of(waiter));',
     'return zkl_claim_grant(zkl_claim_of(waiter));', 1000),

    ('a claim with other permits is refused at once',
     'core/claim.c:zkl_claim_conflict', 'if (!zkl_claim_expired(claim)) {',
     'if (0) {', ('--rich', 1000)),

    ('a claim with other permits is not woken',
     'base/view.c:zkl_view_conflict',
     'if (first->origin != ZKL_LOCAL && !first->watched) {', 'if (0) {',
     ('--rich', 6000)),

    ('a claim is refused for a claim that may be gone',
     'core/lock.c:zkl_lock_conflicts',
     'if (first->origin == ZKL_LOCAL) {', 'if (1) {', ('--rich', 20000)),

    ('a claim that lives in a former lock is counted',
     'core/lock.c:zkl_lock_learn',
     '        || record.czxid <= lock->born || record.czxid >= claim->czxid)',
     '        || (rc == NGX_DONE\n'
     '            && (record.czxid <= lock->born\n'
     '                || record.czxid >= claim->czxid)))', 60000),

    ('the first waiter is refused for a claim that may be gone',
     'core/lock.c:zkl_lock_step',
     'if (zkl_lock_conflicts(lock, waiter)) {',
     'if (1) {', ('--rich', 60000)),

    # planted without regard to this simulation

    ('a write proves by itself that a session lives',
     'zk/session.c',
     '    if (!s->told && now - op->sent < s->timeout / 8) {\n',
     '    s->told = 1;\n'
     '    s->touched = op->sent;\n\n'
     '    if (0) {\n',
     ('--sessions', 12000)),

    ('a remote request that was counted is counted again',
     'shm/record.c',
     'cell->holds >> ZKL_HOLDS_BITS', '(cell->holds & ZKL_HOLDS)',
     ('--rich', 10000)),

    ('who shares gets another token',
     'core/replace.c',
     '        if (cdata.czxid == 0) {\n'
     '            cdata.czxid = op->czxid;\n'
     '        }\n\n',
     '',
     ('--rich', 4000)),

    ('a claim that is withdrawn is one that waits',
     'core/claim.c:zkl_claim_withdraw',
     'zkl_record_close(claim->cell);', '', 60000),

    ('who left with a key loses the place when the wait is over',
     'core/claim.c:zkl_claim_leave',
     '    claim->time = ZKL_TIME_ENDLESS;\n',
     '',
     10000),

    ('those who wait are in no order',
     'base/view.c',
     '    while (before != &view->waiting && before->seq > entry->seq) {\n'
     '        before = before->waiting_prev;\n'
     '    }\n',
     '',
     ('--rich --shortage', 20000)),

    ('a longer time is told while the claim becomes durable',
     'shm/record.c:zkl_record_durable',
     '    cell->durable = 1;\n', '', 60000),

    ('a delete that was never sent may have happened',
     'core/claim.c',
     'claim->doubtful |= (claim->op != NULL);',
     'claim->doubtful = 1;', 60000),

    ('a claim that is shared meanwhile is taken for gone',
     'core/claim.c:zkl_claim_delete_handler',
     'if (zkl_claim_renamed(claim) == NGX_OK) {',
     'if (0) {', ('--rich', 60000)),

    ('a call is answered from a lease that another gateway has taken over',
     'core/call.c',
     '&& (op->owner != 0 || zkl_ahead(record.alive)))', ')',
     ('--rich', 60000)),

    # what is counted, and what two calls do at the same time

    ('a watch that was not set counts as asked for', 'zk/session.c',
     """    if (op->watch) {
        s->watch_asked -= op->path.len + 5;

""",
     '    if (op->watch) {\n', 2000),

    ('the session counts from the moment at which the loop read an answer',
     'zk/session.c',
     """&& (ngx_msec_int_t) (op->sent - s->apart) > 0)
    {
        s->apart = op->sent;""",
     """&& (ngx_msec_int_t) (s->replied - s->apart) > 0)
    {
        s->apart = s->replied;""", ('--sessions', 4000)),

    ('a claim that queues again counts by its old record', 'core/claim.c',
     '(void) zkl_quota_take(worker->zone->map, claim->cell,',
     '(void) zkl_quota_take(worker->zone->map,\n'
     '                  zkl_layout_cell(worker->zone->map, claim->id.record),',
     ('--rich', 2000)),

    ("another gateway's claim is deleted by whatever version",
     'core/call.c:zkl_call_claim_op',
     'op->version = call->version;',
     'op->version = (type == ZKL_OP_DELETE) ? -1 : call->version;',
     ('--rich', 2000)),

    ('a try is refused though no claim is ahead', 'core/claim.c',
     '&& zkl_view_next(&lock->view, &waiter, &blocker) == ZKL_GRANT\n'
     '               && waiter == &claim->entry)',
     '&& (waiter = blocker = NULL) != NULL)', 4000),

    ('a bound claim that is renewed as it expires outlives its connection',
     'core/claim.c',
     """if (!ngx_queue_empty(&claim->listeners)
        || (claim->cell->bound && claim->handler == NULL
            && claim->event == NULL))
    {
        /* the claim was released, or""",
     """if (!ngx_queue_empty(&claim->listeners)) {
        /* the claim was released, or""", ('--rich', 4000)),

    ('what was never answered was done', 'zk/client.c:zkl_client_submit',
     '    op->code = ZCLOSING;\n', '', ('--restored', 2000)),

    ('a transaction that failed is in flight for ever',
     'zk/session.c:zkl_session_landed',
     's->writes -= op->gather;',
     's->writes -= (op->gather && op->code == 0);', 500),

    ('the bytes of a list are given back as they were estimated',
     'zk/turns.c:zkl_turns_answered', '    op->bytes = bytes;\n', '', 500),

    ('an operation that was dropped counts no byte',
     'zk/turns.c:zkl_turns_drop',
     '        turns->bytes++;\n', '', 500),

    ('a watch that fired is not given back',
     'zk/session.c:zkl_session_unwatched',
     '    s->watch_bytes -= key.len + s->conf->chroot.len + 4;\n', '', 500),

    ('a write before the last look serves as the barrier', 'zk/turns.c',
     """                list->fresh = 1;
                list->number = op->number;
""", '                list->fresh = 1;\n', 20000),

    ('a list that others share is fresh for the first only', 'zk/turns.c',
     """            if (op->fresh) {
                list->fresh = 1;
                list->number = op->number;
            }
""", '', 2000),

    ('a list that others share sets no watch for them', 'zk/turns.c',
     '    list->watch |= op->watch;\n', '', 2000),

    ('a call that comes late shares a look that was sent',
     'core/call.c:zkl_call_share',
     'if (look->step == ZKL_STEP_SENT || look->handler == NULL) {',
     'if (look->handler == NULL) {', 2000),

    ('a look lacks the claims that it has not described',
     'core/call.c:zkl_call_found',
     '            call->total--;\n',
     '            call->total -= (i != 0);\n', 2000),

    ('who shares a list is told of no lock as of an empty one',
     'core/call.c:zkl_call_list_handler',
     'if (op->rc != ZKL_OK && op->rc != ZKL_NO_NODE) {',
     'if (op->rc == ZKL_NO_NODE) {\n        op->rc = ZKL_OK;\n    }\n'
     '\n    if (op->rc != ZKL_OK) {', 2000),

    ('the next look at a lock begins with nobody',
     'core/call.c:zkl_call_look_end',
     """    if (look->later != NULL) {
        zkl_call_look_begin(look->later);
    }
""", '', 500),

    ('a lock that is followed is not listed when the connection is back',
     'core/follow.c:zkl_follow_connected',
     '        zkl_followed_list((zkl_followed_t *) node);\n', '', 2000),

    ('the creation of a lock is not followed',
     'core/follow.c:zkl_followed_handler',
     """        zkl_followed_look(followed, ZKL_OP_EXISTS);
        return;
""", '', 2000),

    ('a question keeps its turns', 'core/names.c:zkl_names_leave',
     '    names->worker->nsearching -= names->turns;\n', '', 2000),

    # how often a claim is held

    ('a release elsewhere without an answer is asked for again',
     'core/call.c:zkl_call_write_handler',
     'if (call->type == ZKL_HOLD || call->type == ZKL_RELEASE) {',
     'if (call->type == ZKL_HOLD) {',
     ('--rich', 2000)),

    ('a hold elsewhere without an answer is asked for again',
     'core/call.c:zkl_call_write_handler',
     'if (call->type == ZKL_HOLD || call->type == ZKL_RELEASE) {',
     'if (call->type == ZKL_RELEASE) {',
     ('--rich', 2000)),

    ('a hold less is counted each time the call begins',
     'core/call.c:zkl_call_begin',
     '               || call->reply == ZKL_REPLY_COUNTED\n'
     '               || (call->type == ZKL_RELEASE && call->ninfos != 0)\n',
     '', 500),

    ('a claim that is taken over is held once', 'shm/record.c',
     'cell->holds = ngx_max(cdata->holds, 1);', 'cell->holds = 1;', 500),

    ('who releases one of several holds releases all',
     'core/claim.c:zkl_claim_hold',
     'less ? holds - 1 : holds + 1', 'less ? 0 : holds + 1', 500),

    # what workers and zones count

    ('a worker that stays is one whose adopted slot stays',
     'shm/zone.c:zkl_zone_staying',
     'slot->home == i && !slot->leaving', '!slot->leaving', 2000),

    ('no worker stays', 'shm/zone.c:zkl_zone_outlives',
     """           || zkl_zone_staying(zone);""", ';', 500),

    ('a slot is left by a worker that has left', 'shm/zone.c:zkl_zone_take',
     '    slot->leaving = 0;\n', '', 2000),

    ('an adopted slot is its own home', 'shm/zone.c:zkl_zone_adopt',
     '*zone = *home;\n',
     '*zone = *home;\n        zone->home = home->map->nslots;\n', 2000),

    ('a record that is free has its cells', 'shm/record.c:zkl_record_free',
     '    zone->map->starts[chunk] &= '
     '~((uint64_t) 1 << (record % ZKL_CHUNK));\n', '', 500),

    ('a look keeps its turn', 'core/call.c:zkl_call_look_end',
     '    worker->nlooks--;\n', '', 500),

    ('a client that has left is waited for', 'core/call.c:zkl_call_deaf',
     '        call->worker->nawaited--;\n', '', 500),

    ('a claim that is taken over is not found by its id',
     'core/claim.c:zkl_claim_find',
     'claim = sn ? ', 'claim = (sn && 0) ? ', 2000),

    ('siblings do not find a record that is taken over',
     'shm/record.c:zkl_record_adopt',
     '    zkl_record_moved(zone, *record);\n', '', 2000),

    ('a key without claims stays in the table of quotas',
     'shm/quota.c:zkl_quota_give_back',
     '? found.value - 1 : 0));', '? found.value - 1 : found.value - 1));',
     500),

    ('an adopted slot is kept by a gateway that has ended',
     'core/worker.c:zkl_worker_part',
     '(successor || !closes) && zone', '1 && zone', 500),

    # versions of a znode's life

    ('a claim with another name has the version of the name before',
     'shm/record.c:zkl_record_unread',
     '    cell->version = ZKL_UNREAD;\n', '(void) cell;', ('--rich', 12000)),

    ('a claim that another session counts has the version of before',
     'shm/record.c:zkl_record_open',
     '    cell->version = ZKL_UNREAD;\n', '', ('--rich', 12000)),

    ('a claim begins with the version of the claim before',
     'shm/record.c:zkl_record_begin',
     'offsetof(zkl_cell_t, state),\n                '
     'offsetof(zkl_cell_t, path) - offsetof(zkl_cell_t, state));',
     'offsetof(zkl_cell_t, renewals),\n                '
     'offsetof(zkl_cell_t, path) - offsetof(zkl_cell_t, renewals));\n'
     '    cell->ttl = 0;\n    cell->lease = 0;', ('--rich', 20000)),

    ('a claim is made durable with the renewals of its data as read first',
     'shm/record.c:zkl_record_cdata',
     '    cdata->renewals = (uint32_t) cell->renewals;\n', '', 2000),

    ('a write by a version that has changed is tried with the next',
     'core/call.c:zkl_call_claim_op',
     'op->version = call->version;',
     'op->version = call->version\n'
     '        + (int32_t) (type == ZKL_OP_SET ? call->tries : 0);', 2000),

    ('reads are fresh without a write', 'zk/session.c:zkl_session_send',
     """        s->barrier = 1;

        ngx_queue_insert_tail(&s->fresh""",
     """        ngx_queue_insert_tail(&s->fresh""", 2000),

    ('what was gathered is counted twice',
     'zk/session.c:zkl_session_gather',
     """    op = zkl_op_pop(&s->pending);
    s->npending--;
""", '    op = zkl_op_pop(&s->pending);\n', 500),

    # what waits, and nothing wakes

    ('followers are told of the list of before the last change',
     'core/follow.c:zkl_follow_changed',
     """    if (followed->op != NULL) {
        /* the watch has told before the list, which is shared, was told */

        followed->op->handler = NULL;
        followed->op = NULL;
    }

""", '', 6000),

    ('a claim with a key that queues again has no deadline',
     'core/claim.c:zkl_claim_note',
     'if (claim->terms.keyed) {',
     'if (claim->terms.keyed && claim->started == ngx_current_msec) {', 1000),

    ('after a write that was refused the next is not due at once',
     'zk/session.c:zkl_session_heard',
     's->wrote = s->proves - 1;', 's->wrote = s->proves;', 1000),

    ('a change that was seen is handled after the connection broke',
     'core/lock.c:zkl_lock_forget',
     '    lock->handled = lock->bumped ? 0 : lock->handled;\n', '', 60000),

    ('writes that are refused hold the barriers off',
     'zk/session.c:zkl_session_submit',
     's->rejected == 0', '1', ('--sessions', 6000)),

    ('a read is sent behind a write that is refused',
     'zk/session.c:zkl_session_read_handler',
     'op->number >= s->sure', 'op->number == s->written', 6000),

    # without memory

    ('a list that there is no memory for is not sent later',
     'core/lock.c:zkl_lock_list',
     'lock->partial = 1;',
     '', ('--rich --shortage', 6000)),

    ('a durable claim is lost if there is no memory to move it',
     'core/adopt.c:zkl_adopt_record', 'adoption->failed = 1;', ';',
     ('--rich --shortage', 2000)),

    ('a downgrade that there is no memory for is not begun again',
     'core/claim.c:zkl_claim_took',
     'zkl_claim_downgrade(claim);',
     'claim->entry.mode = claim->cell->was;\n        '
     'zkl_claim_downgrade(claim);', ('--rich --shortage', 12000)),

    ('the delete of an entry that was not sent is forgotten',
     'core/custody.c:zkl_gate_remove',
     'zkl_session_send(op, zkl_gate_written_handler, gate->worker);',
     'zkl_session_send(op, NULL, NULL);',
     ('--rich --shortage', 40000)),

    # custody by gate

    ('the entry of a claim that ends stays',
     'core/custody.c:zkl_custody_leave',
     'zkl_gate_remove(gate, entry);\n', '', 500),

    ('the question of a dead worker is served', 'shm/errand.c:zkl_errand_look',
     'if (zkl_layout_dead(place->owner, 1)) {', 'if (0) {', 12000),

    ('the entries of a gate that is owned are not listed again',
     'core/custody.c:zkl_custody_connected',
     'ngx_min(gate->state, ZKL_GATE_LIST)',
     'gate->state == ZKL_GATE_READ ? ZKL_GATE_LIST : gate->state', 12000),

    ('a session counts before it owns the gate',
     'core/custody.c:zkl_custody_counts',
     'gate->state >= ZKL_GATE_LIST', 'gate->state >= ZKL_GATE_LOOK', 2000),

    ('an entry is made for a claim that is about to be entered',
     'core/custody.c:zkl_gate_check',
     'claim->lasting == ZKL_DURABLE && claim->replace == NULL', '1', 500),

    ('the entry of a claim that has become a reader is removed',
     'core/custody.c:zkl_gate_claim_read',
     '} else if (op->rc == ZKL_NO_NODE) {', '} else if (0) {', 12000),

    ('a gate whose create got no answer is another session\'s',
     'core/custody.c:zkl_gate_handler',
     'if (op->owner == worker->zone->own->key.id) {', 'if (0) {', 12000),

    ('the list of the gates is not tried again',
     'core/custody.c:zkl_custody_gates_handler',
     'worker->unlisted = 1;\n        return;', 'return;', 500),

    ('the gates are listed without a watch',
     'core/custody.c:zkl_custody_sweep', 'op->watch = 1;', '', 500),

    ('who waits for a gate is not told that it is owned',
     'core/custody.c:zkl_gate_handler',
     'if (zkl_gate_home(gate)) {', 'if (0) {', 2000),

    ('the data of a durable claim name no gate',
     'core/replace.c:zkl_replace_read_handler',
     'cdata.gate_len = ZKL_GATE_LEN;', '', 500),

    ('the data of a durable claim have the ttl of the acquire',
     'shm/record.c:zkl_record_durable',
     '    cdata->ttl = ngx_max(cdata->ttl, (int64_t) cell->ttl);\n', '', 2000),

    ('a lease that is taken over has no timer',
     'core/claim.c:zkl_claim_took', 'zkl_claim_lease(claim);', '', 500),

    ('a claim that another session counts has ended',
     'core/claim.c:zkl_claim_forsake',
     'zkl_record_ending(claim->cell, ZKL_ENDING_FORSAKEN);',
     'zkl_record_end(claim->lock->worker->zone, claim->id.record);', 2000),

    ('the entry of an adopted claim that ends stays',
     'core/claim.c:zkl_claim_replace',
     '        zkl_custody_leave(claim);\n'
     '        zkl_custody_join(gate, claim);\n', '',
     ('--rich --shortage', 12000)),

    ('an adopted claim that is ephemeral is taken for durable',
     'core/claim.c:zkl_claim_take_read', 'if (op->owner != 0) {', 'if (0) {',
     500),

    # adoption

    ('an adopted claim counts as settled while it is made durable',
     'core/claim.c:zkl_claim_replace',
     'if (claim->gate != gate) {',
     'zkl_claim_settled(claim);\n\n'
     '    if (claim->gate != gate) {', 500),

    ('an adopted claim that is durable is never settled',
     'core/claim.c:zkl_claim_take_read', 'zkl_claim_settled(claim);', '',
     500),

    ('an adopted claim that ends is never settled',
     'core/claim.c:zkl_claim_done', 'zkl_claim_settled(claim);', '', 2000),

    ('an adopted claim is settled twice',
     'core/claim.c:zkl_claim_settled', 'claim->adoption = NULL;', '', 500),

    ('the record of an adopted claim moves before the claim is durable',
     'core/claim.c:zkl_claim_adopt', 'zkl_claim_take(claim);',
     'zkl_record_open(worker->zone, record->id.record);\n\n'
     '    zkl_claim_take(claim);', 500),

    ('the record of a claim that is settled does not move',
     'core/claim.c:zkl_claim_take_read',
     '        zkl_record_open(lock->worker->zone, claim->id.record);\n', '',
     500),

    ('a record that moves stays in its slot', 'shm/record.c:zkl_record_open',
     '    cell->slot = (uint16_t) zone->slot;\n', '', 500),

    ('the cells of a record that has moved go with the slot',
     'core/adopt.c:zkl_adopt_over_handler',
     'zkl_record_hand_over(zone, worker->zone);', '', 500),

    ('the cells of a record that has moved stay with the slot',
     'shm/record.c:zkl_record_hand_over',
     '? to->slot + 1 : 0', '? 0 : 0', 500),

    ('a renewal elsewhere gives an adopted lease a moment only',
     'core/claim.c:zkl_claim_secure', 'cdata->async ? 1 : 0', '1', 2000),

    ('a claim that is found by its entry is adopted as another claim',
     'core/claim.c:zkl_claim_adopt',
     'return NGX_BUSY;', 'return NGX_OK;', 12000),

    ('an adopted claim is not read when the successor connects',
     'core/claim.c:zkl_claim_proceed',
     'case ZKL_TAKE:\n        zkl_claim_take(claim);\n        break;', '',
     2000),

    ('an open record is that of a claim to delete',
     'core/adopt.c:zkl_adopt_record',
     'if (record->state == ZKL_RECORD_OPEN) {', 'if (0) {', 12000),

    ('an adopted claim has the number of its record in its name',
     'core/claim.c:zkl_claim_adopt', 'child.id.record = record->named;', '',
     12000),

    ('a downgrade that a dead worker began is taken for done',
     'core/claim.c:zkl_claim_adopt', 'claim->said.ttl = record->ttl;',
     'claim->said.ttl = record->ttl;\n    zkl_record_named(claim->cell);',
     ('--rich --shortage', 12000)),

    ('an adopted session is left when no claim needs it',
     'core/adopt.c:zkl_adopt_over_handler',
     'zkl_session_close(adoption->session);',
     'zkl_session_leave(adoption->session);', 2000),

    ('an adopted session that is over is to be closed',
     'core/adopt.c:zkl_adopt_lost', 'adoption->ended = 1;', '', 12000),

    ('a claim that had begun to end ends before it is deleted',
     'core/adopt.c:zkl_adopt_record',
     '(ended && record->seq != -1)', '0', ('--rich', 20000)),

    ('an adopted claim is lost with the session of the successor',
     'core/claim.c:zkl_claim_session_over',
     '            zkl_custody_leave(claim);\n',
     '            claim->lost = 1;\n            zkl_claim_done(claim);\n',
     12000),

    # errands, and what the claim's worker does for calls

    ('a sibling counts a hold that was called back',
     'core/serve.c:zkl_serve_begin',
     'return zkl_errand_begin(', 'return NGX_OK + 0 * zkl_errand_begin(',
     60000),

    ('a place is used again while the sibling may reply',
     'shm/errand.c:zkl_errand_free',
     'if (zkl_errand_over(place, &word)) {',
     'if (zkl_errand_over(place, &word) || 1) {', ('--rich', 7000)),

    ('an errand that ends is still asked for',
     'core/call.c:zkl_call_take_back',
     '    call->worker->asked[n] = NULL;\n', '', 500),

    ('a place that a sibling may write to is taken over',
     'shm/errand.c:zkl_errand_place',
     '&& zkl_errand_over(place, &word)))',
     '&& (zkl_errand_over(place, &word) || 1)))', ('--rich', 10000)),

    ('a hold here forgets which hold elsewhere was counted',
     'shm/record.c:zkl_record_count',
     'anew ? holds : (cell->holds & ~ZKL_HOLDS) | holds', 'holds',
     ('--rich', 15000)),

    ('a reply is that of whoever looks', 'shm/errand.c:zkl_errand_look',
     'return (place->owner == self\n', 'return (1\n',
     ('--rich', 600)),

    ('who has asked is not rung', 'shm/errand.c:zkl_errand_reply',
     '        zkl_doorbell_keeper(zone->map, place->from, '
     'zone->map->ncells + n);\n', '', 500),

    ('a reply that comes late keeps its place',
     'core/serve.c:zkl_serve_errand',
     '        (void) zkl_errand_free(worker->zone, n);\n', '',
     ('--rich', 500)),

    ('a claim that another session counts is one whose lease is over',
     'core/serve.c:zkl_serve',
     'if (claim->state == ZKL_TAKE) {', 'if (0) {', ('--rich', 4000)),

    ('who asks for a claim that waits does not keep the claim',
     'core/serve.c:zkl_serve',
     '|| zkl_claim_keep(claim, errand->grace) == NGX_OK', '|| 1', 2500),

    ('a one-node claim is believed to be watched over an outage',
     'core/claim.c:zkl_claim_suspended', 'if (claim->lock->node) {',
     'if (0) {', ('--node', 1000)),

    ('a sibling waits for a session that may be over',
     'core/serve.c:zkl_serve_doubts',
     '&& (claim->lasting == ZKL_DURABLE || served->call == NULL)',
     '&& claim->lasting == ZKL_DURABLE', 6000),

    ('a claim that was gone was released',
     'core/serve.c:zkl_serve_release',
     'zkl_claim_release(claim, &served->listener);',
     'served->gone = ZKL_REPLY_OK;\n'
     '    zkl_claim_release(claim, &served->listener);', 2000),

    ('a release that a sibling may have counted is counted again',
     'core/call.c:zkl_call_rung',
     'state == ZKL_ERRAND_COUNTS', '0', 4000),

    ("a claim's worker that does nothing has renewed",
     'core/call.c:zkl_call_inspect_handler',
     '&& call->reply != ZKL_REPLY_ABSENT\n', '\n', ('--rich', 600)),

    ('a renewal gives a lease to a claim that has none',
     'core/claim.c:zkl_claim_renew',
     'if (claim->cell->bound && !claim->terms.leased) {', 'if (0) {', 500),

    ('who waits for a write is not told of the end',
     'core/claim.c:zkl_claim_done',
     '    zkl_claim_tell_listeners(&claim->asked, ZKL_NO_NODE);\n', '',
     ('--rich', 500)),

    ('who comes while a write is under way is told of that write',
     'core/claim.c:zkl_claim_write_done',
     '    while (', '    zkl_claim_write_asked(claim);\n\n    while (',
     ('--rich', 5000)),

    ('a hold is not written', 'core/claim.c:zkl_claim_remote',
     'if ((int64_t) zkl_claim_holds(claim) != ngx_max(cdata->holds, 1)) {',
     'if (0) {',
     ('--rich', 500)),
]


# Bugs that do harm in too few histories to be found in the time of each run, or
# in histories with --node, see README.md: tried by name only.
RARE = [
    'a downgrade that a dead worker began is taken for done',
    'the znode of another claim is taken for the own',
    'a call takes the znode of another claim for the own',
    'a one-node claim is deleted whatever the version',
    'a one-node claim that is not watched is deleted without a look',
    'the end of a znode wakes no claim',
    'a claim contends beside a claim that may have the znode',
    'a read that found no znode is not followed by a create',
    'a one-node claim that waits too long is not told so',
    'a session that is over goes on while it is connected',
    'a release ends the holds that another session has counted',
    'a claim that is withdrawn is one that waits',
    'a downgrade that there is no memory for is not begun again',
    'a claim that another session counts is one whose lease is over',
    'a call is answered from a lease that another gateway has taken over',
    'a claim that had begun to end ends before it is deleted',
    'a durable claim is lost if there is no memory to move it',
    'the delete of an entry that was not sent is forgotten',
    'a claim that is found by its entry is adopted as another claim',
    'a change that was seen is handled after the connection broke',
    'a change counts as handled before ZooKeeper lost the change',
    'a number in a name is taken for given',
    'a view outlives its connection',
    'a list that there is no memory for is not sent later',
    'a deleted event of a sibling is believed',
    'a repeat joins whom it sees first',
    'a session without memory for the gate makes claims',
    'refused again in the same turn',
    'a leader that stood still has heard of each write',
    'two writes prove that a session lives',
    'a record that is taken over is found half made',
    'a worker leaves whom it owes an answer',
    'any answer proves that a session lives',
    'the question of a dead worker is served',
    'contiguity is kept over a reaped parent',
    'a longer time is told while the claim becomes durable',
    'a delete that was never sent may have happened',
    'a claim that is shared meanwhile is taken for gone',
    'a claim that lives in a former lock is counted',
    'the first waiter is refused for a claim that may be gone',
    'those who wait are in no order',
    'a claim with another name has the version of the name before',
    'a claim that another session counts has the version of before',
    'a claim is made durable with the renewals of its data as read first',
    'a renewal is known before it counts',
    'a sibling counts a hold that was called back',
    'a place that a sibling may write to is taken over',
    'the quarter counts from the send of a write that was slow',
    'a claim is refused for a claim that may be gone',
    'a write before the last look serves as the barrier',
    'an adopted claim is lost with the session of the successor',
    'a hold here forgets which hold elsewhere was counted',
]


def taken_in(file, library):
    """Returns the file that takes in file, with that text instead."""

    with open(f't/gsim/{TAKEN_IN[file]}') as source:
        text = source.read()

    header = os.path.abspath('t/gsim/gsim.h')

    return text.replace(f'#include "../../src/{file}"', library).replace(
        '"gsim.h"', f'"{header}"')


def look(program, traits, first, seeds):
    """Returns what is wrong, or None; the first seed that fails; why."""

    done = subprocess.run([program, '--from', str(first),
                           '--seeds', str(max(seeds, 0)), *traits],
                          capture_output=True, text=True, errors='replace',
                          timeout=1800)

    if done.returncode == 0:
        return f'not found in {seeds} histories', None, None

    seed = re.search(r'failed: seed (\d+)', done.stdout)
    says = re.search(r'VIOLATION: (.*)', done.stdout)

    if seed is None or says is None:
        return f'status {done.returncode}: {done.stderr[-500:]}', None, None

    return None, int(seed.group(1)), says.group(1)


def run(build, number, mutant):
    """Returns None, or what is wrong; prints what was found."""

    name, where, there, instead, seeds = mutant

    file = planted.file_of(where)

    with open(f'src/{file}') as source:
        text = source.read()

    try:
        text = planted.plant(text, where, there, instead)
    except ValueError as error:
        return str(error)

    folder = f'{build}/mutants'
    os.makedirs(folder, exist_ok=True)

    mutated = f'{folder}/{number}-{os.path.basename(file)}'
    program = f'{folder}/{number}'
    o = f'{folder}/{number}.o'
    unit = file

    if file in TAKEN_IN:
        unit = TAKEN_IN[file]
        text = taken_in(file, text)

    with open(mutated, 'w') as out:
        out.write(text)

    unit = f'{build}/{unit.replace(".c", ".o")}'
    others = [f'{build}/{f.replace(".c", ".o")}' for f in TAKEN_IN]
    objects = [f for f in sorted(glob.glob(f'{build}/*.o')
                                 + glob.glob(f'{build}/[a-z]*/*.o'))
               if f not in (unit, *others) and not f.startswith(folder)]

    subprocess.run(shlex.split(os.environ['MUTANT_CC'])
                   + ['-w', '-c', '-o', o, mutated], check=True)
    subprocess.run(shlex.split(os.environ['MUTANT_LINK'])
                   + ['-o', program, o, *objects, '-lyajl', '-lpthread'],
                   check=True)

    trait, seeds = seeds if isinstance(seeds, tuple) else ('', seeds)
    traits = trait.split()
    first = 1

    while True:
        left = seeds + 1 - first
        wrong, seed, says = look(program, traits, first, left)

        if wrong is not None:
            return wrong if left > 0 else f'not found in {seeds} histories'

        # a history that fails without the mutant says nothing of the mutant

        alone = look(f'{build}/gateway_sim', traits, seed, 1)

        if alone[1] is None:
            break

        print(f'seed {seed} {trait} fails without "{name}"', flush=True)
        first = seed + 1

    says = re.sub(r'_c_[0-9a-f]{8}-[0-9a-f-]{27}-', '_c_...-', says)
    print(f'ok: {name}: seed {seed} {trait}: {says[:100]}', flush=True)

    os.remove(program)

    return None


def main():
    build, *names = sys.argv[1:]
    failed = 0

    for name in set(names) - {m[0] for m in MUTANTS}:
        sys.exit(f'no planted bug has the name "{name}"')

    mutants = [m for m in MUTANTS
               if (m[0] in names if names else m[0] not in RARE)]

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        results = pool.map(lambda n: run(build, n, mutants[n]),
                           range(len(mutants)))

        for mutant, wrong in zip(mutants, results):
            if wrong is not None:
                failed += 1
                print(f'NOT OK: {mutant[0]}: {wrong}', flush=True)

    print(f'{len(mutants) - failed} mutants found, {failed} not')

    return 1 if failed or not mutants else 0


if __name__ == '__main__':
    sys.exit(main())
