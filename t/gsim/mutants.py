#!/usr/bin/python3
"""Breaks src/ in one place at a time, and has the simulation find it.

usage: mutants.py BUILD [NAME]...

BUILD has the objects of gateway_sim.  Each mutant is one file of src/ with
one text replaced, compiled and linked with the others; MUTANT_CC and
MUTANT_LINK say how.  A text that is not there exactly once, a mutant that does
not compile, and one that is not found within its histories, are failures.  It
is found in a history that the program without it passes.
"""

import concurrent.futures
import os
import re
import shlex
import subprocess
import sys

# name, file, what is there, what is put in its place, and in how many histories
# it is found; or a trait of these and how many, for what harms too seldom

LIBRARY = 'ngx_http_zk_lock_library.c'

MUTANTS = [
    ('who waits is told before its claim is durable',
     'ngx_http_zk_lock_grant.c',
     'ngx_http_zk_lock_claim_durable(claim);\n        return NGX_OK;',
     'ngx_http_zk_lock_claim_durable(claim);', 2000),

    ('a watch on a claim that is counted elsewhere outlives its session',
     'ngx_http_zk_lock_durable.c',
     '        claim->watched = 0;\n        return NGX_OK;\n',
     '        return NGX_OK;\n', 60000),

    ('a lease that is held for long is not made durable',
     'ngx_http_zk_lock_lease.c',
     '        ngx_http_zk_lock_claim_durable(claim);\n', '', 2000),

    ('a durable claim is lost with its session',
     'ngx_http_zk_lock_recover.c',
     'if (ngx_http_zk_lock_claim_outlives(claim) == NGX_OK) {',
     'if (0) {', 12000),

    ('the fencing token of a durable claim is that of its znode',
     'ngx_http_zk_lock_share.c',
     'label.czxid = op->czxid;', 'label.czxid = 0;', 12000),

    ('others take a claim that is made durable for released',
     'zk_lock_view.c',
     'if (entry->origin == ZK_LOCK_FOREIGN\n'
     '        && entry->seq <= view->complete_through)',
     'if (0)', 12000),

    ('the lock is not touched when a claim is made durable', LIBRARY,
     """        zoo_set_op_init(&zops[n++], (char *) op->parent.data,
                        (char *) op->content.data, (int) op->content.len,
                        op->version, &results->set);
""",
     """        zoo_check_op_init(&zops[n++], (char *) op->parent.data,
                          op->version);
""", 12000),

    ('a claim is made durable by whatever version', LIBRARY,
     'zoo_delete_op_init(&zops[n++], (char *) op->path.data, '
     'op->from_version);',
     'zoo_delete_op_init(&zops[n++], (char *) op->path.data, -1);', 60000),

    ('the lease of a claim that is taken over counts from before',
     'ngx_http_zk_lock_record.c',
     'lease = ngx_http_zk_lock_now() + ttl;\n\n        cell->since',
     'lease = ngx_http_zk_lock_now() + ttl / 2;\n\n        cell->since',
     12000),

    ('a claim is taken over while its gate is there',
     'ngx_http_zk_lock_scan.c',
     'if (gate != NULL\n'
     '            && ngx_memcmp(gate->data, name->data, '
     'NGX_HTTP_ZK_LOCK_GATE_LEN)',
     'if (0\n'
     '            && ngx_memcmp(gate->data, name->data, '
     'NGX_HTTP_ZK_LOCK_GATE_LEN)', 12000),

    ('nothing is taken over', 'ngx_http_zk_lock_scan.c',
     'if (ngx_http_zk_lock_claim_inherit(scan->worker, path, child, get)\n'
     '        != NGX_OK)',
     'if (0)', 12000),

    ('a mark is removed before all is taken over', 'ngx_http_zk_lock_scan.c',
     '    if (ngx_http_zk_lock_claim_untaken(scan->worker, '
     'scan->mark.data)) {\n'
     '        ngx_http_zk_lock_scan_after(scan, '
     'NGX_HTTP_ZK_LOCK_SCAN_AGAIN);\n'
     '        return;\n'
     '    }\n\n'
     '    if (scan->found) {\n',
     '    if (0) {\n', 60000),

    ('the holds of a claim that was taken over are counted in its old record',
     'ngx_http_zk_lock_drop.c',
     '&& (!alive || !ngx_http_zk_lock_session_ready',
     '&& (0 || !ngx_http_zk_lock_session_ready', ('--rich', 60000)),

    ('claims are durable without a mark', 'ngx_http_zk_lock_durable.c',
     '    if (mark->there) {\n        return NGX_OK;\n    }\n',
     '    if (1) {\n        return NGX_OK;\n    }\n', 12000),

    ('a claim that another session has taken is counted here',
     'ngx_http_zk_lock_durable.c',
     'return claim->durable && label->index >= 0',
     'return 0 && label->index >= 0', 60000),

    ('an open record tells', 'ngx_http_zk_lock_known.c',
     '&& record->state != NGX_HTTP_ZK_LOCK_RECORD_OPEN\n', '', 60000),

    ('a forsaken record is that of a claim that ended',
     'ngx_http_zk_lock_record.c',
     '    if (copy.forsaken) {\n        return NGX_OK;\n    }\n\n', '', 60000),

    ('the label of a durable claim forgets a longer time',
     'ngx_http_zk_lock_known.c',
     '&& record->durable && (int64_t) info->ttl > label.ttl)',
     '&& 0)', 12000),

    ('a deleted event of a sibling is believed', 'ngx_http_zk_lock_guard.c',
     'if (deleted && entry->origin == ZK_LOCK_FOREIGN) {',
     'if (deleted) {', 12000),

    ('a record that is taken over is found half made',
     'ngx_http_zk_lock_record.c',
     '    cell->durable = 1;\n'
     '    cell->state = NGX_HTTP_ZK_LOCK_RECORD_OPEN;\n\n'
     '    ngx_http_zk_lock_record_start(zone, *record);\n',
     '    cell->durable = 1;\n'
     '    ngx_http_zk_lock_record_start(zone, *record);\n'
     '    cell->state = NGX_HTTP_ZK_LOCK_RECORD_OPEN;\n', 60000),

    ('a renewal that a dead worker had not heard of is lost',
     'ngx_http_zk_lock_ward.c',
     '    (void) ngx_http_zk_lock_record_renewed(zone, ward->id.record, '
     'op->version,',
     '    if (0) (void) ngx_http_zk_lock_record_renewed(zone, '
     'ward->id.record, op->version,', 4000),

    ('a gap is trusted', 'zk_lock_view.c',
     'if (entry->seq == 0 || (view->complete_through != -1\n'
     '                            && entry->seq == '
     'view->complete_through + 1))\n',
     'if (1)\n', 2000),

    ('contiguity is kept over a reaped parent', 'ngx_http_zk_lock_guard.c',
     'op->rc == NGX_HTTP_ZK_LOCK_OK && op->czxid < lock->guarded)',
     'op->rc == NGX_HTTP_ZK_LOCK_OK)', 12000),

    ('a reader passes a writer', 'zk_lock_view.c',
     'return ahead != ZK_LOCK_READ || behind != ZK_LOCK_READ;',
     'return ahead != ZK_LOCK_WRITE || behind != ZK_LOCK_READ;', 2000),

    ('nothing is listed after a gap', 'zk_lock_view.c',
     'if ((*waiter)->seq > view->complete_through) {\n'
     '        return ZK_LOCK_COMPLETE;',
     'if ((*waiter)->seq > view->complete_through) {\n'
     '        return ZK_LOCK_NOTHING;', 2000),

    ('the watch moves past a live claim', 'ngx_http_zk_lock_guard.c',
     'if (deleted && entry->origin == ZK_LOCK_FOREIGN) {',
     'if (1) {', 12000),

    ('nothing is synced behind a new connection',
     'ngx_http_zk_lock_session.c',
     '    s->barrier = 1;\n'
     '    ngx_http_zk_lock_session_barrier(s);\n'
     '\n'
     '    if (s->barrier) {\n'
     '        /* no memory; the tick tries again */\n'
     '        s->late = 1;\n'
     '        return;\n'
     '    }\n'
     '\n',
     '',
     2000),

    ('granted without a look at the session', 'ngx_http_zk_lock_pulse.c',
     'return s->state == NGX_HTTP_ZK_LOCK_CONNECTED\n'
     '           && ngx_http_zk_lock_ahead(*s->alive);',
     'return s->state == NGX_HTTP_ZK_LOCK_CONNECTED;', ('--sessions', 12000)),

    ('who has left is handed the lock', 'ngx_http_zk_lock_claim.c',
     'case NGX_HTTP_ZK_LOCK_WAIT:\n    case NGX_HTTP_ZK_LOCK_HELD:\n'
     '        ngx_http_zk_lock_claim_end(claim, NGX_HTTP_ZK_LOCK_CANCELLED);\n'
     '        break;\n\n    default:\n        /* CREATE',
     'case NGX_HTTP_ZK_LOCK_WAIT:\n    case NGX_HTTP_ZK_LOCK_HELD:\n'
     '        claim->ttl = 1000000;\n'
     '        break;\n\n    default:\n        /* CREATE', 2000),

    ('a lease ends though another gateway renewed it',
     'ngx_http_zk_lock_lease.c',
     'op->version = ngx_http_zk_lock_record_version(claim->lock->worker->zone,'
     '\n                                                  claim->id.record);',
     'op->version = -1;', 2000),

    ('the living are adopted', 'ngx_http_zk_lock_zone.c',
     '&& ngx_http_zk_lock_map_dead(keeper, 0)\n'
     '            && ngx_http_zk_lock_zone_take(',
     '&& ngx_http_zk_lock_zone_take(', 2000),

    ('a delete is not sent again', 'ngx_http_zk_lock_recover.c',
     'case NGX_HTTP_ZK_LOCK_OWED:\n'
     '        ngx_http_zk_lock_claim_delete(claim, 0);\n'
     '        break;\n\n    default:\n        break;\n    }\n}\n',
     'default:\n        break;\n    }\n}\n', 5000),

    ('a create is sent again blindly', 'ngx_http_zk_lock_grant.c',
     'case NGX_HTTP_ZK_LOCK_UNKNOWN:\n'
     '        ngx_http_zk_lock_claim_recover(claim);\n        break;\n',
     'case NGX_HTTP_ZK_LOCK_UNKNOWN:\n', 5000),

    ('the doorbell is lost', 'ngx_http_zk_lock_ring.c',
     'one = 1;\n', 'one = 1;\n\n    return;\n', 3000),

    ('what is held goes with its worker', 'ngx_http_zk_lock_ward.c',
     'ward->state = NGX_HTTP_ZK_LOCK_WARD_READ;\n\n'
     '        /* the dead worker',
     'ward->state = NGX_HTTP_ZK_LOCK_WARD_DELETE;\n\n'
     '        /* the dead worker', 5000),

    ('the tokens of a transaction fall',
     'ngx_http_zk_lock_claim.c',
     'return czxid * 256 + (int64_t) index;',
     'return czxid * 256 + 255 - (int64_t) index;', 60000),

    ('a held session is closed in a reload', 'ngx_http_zk_lock_worker.c',
     '\n             && (ngx_terminate || !needed);', ';', 5000),

    ('granted by a gateway that ends', 'ngx_http_zk_lock_worker.c',
     'return worker->leaving && '
     '!ngx_http_zk_lock_zone_outlives(worker->zone);',
     'return 0;', 5000),

    ('old workers do not know that their heirs leave',
     'ngx_http_zk_lock_zone.c',
     'map->over = map->reloads;', '', 5000),

    ('one of several that queued again has no leader',
     'ngx_http_zk_lock_lease.c',
     'ngx_http_zk_lock_record_bind(zone, claim->id.record,\n'
     '                                     claims[0]->id.record);', '',
     ('--rich', 12000)),

    ('children of a list are leaked', 'ngx_http_zk_lock_op.c',
     'if (op->children != NULL) {\n        free(op->children);\n    }\n\n',
     '', 2000),

    # what this simulation has found once

    ('refused again in the same turn', 'ngx_http_zk_lock_flight.c',
     '    ngx_queue_insert_tail(&s->failed, &op->flight.queue);\n\n',
     '    ngx_queue_insert_tail(&s->failed, &op->flight.queue);\n\n'
     '    ngx_post_event(&s->flush, &ngx_posted_events);\n'
     '    return;\n\n', 12000),

    ('a grant is told though its lease is over',
     'ngx_http_zk_lock_grant.c',
     'ngx_http_zk_lock_claim_answer(claim, NGX_HTTP_ZK_LOCK_UNREACHABLE);\n'
     '    }\n\n    return NGX_OK;',
     '    }\n\n    return NGX_OK;', 40000),

    ('an heir deletes what was told as held elsewhere',
     'ngx_http_zk_lock_ward.c',
     'ward->alone = (record->ttl != 0 && !record->bound',
     'ward->alone = (0 && !record->bound', 5000),

    ('a worker deletes what was told as held elsewhere',
     'ngx_http_zk_lock_reread.c',
     'return claim->grace != 0 && !claim->bound && label->index >= 0\n'
     '           && !label->async;',
     'return 0;', 12000),

    ('a repeat joins whom it sees first', 'ngx_http_zk_lock_grant.c',
     'claim->twin = child;\n            seq = child.seq;\n',
     'if (seq == claim->entry.seq) {\n                claim->twin = child;\n'
     '            }\n            seq = child.seq;\n', 12000),

    ('a renewal is known before it counts', 'ngx_http_zk_lock_held.c',
     'ngx_http_zk_lock_record_extend(cell, ttl, seen);\n\n'
     '    (void) ngx_http_zk_lock_record_saw(&cell->renewals, renewals);\n',
     '(void) ngx_http_zk_lock_record_saw(&cell->renewals, renewals);\n\n'
     '    ngx_http_zk_lock_record_extend(cell, ttl, seen);\n', 60000),

    ('a worker leaves whom it owes an answer', 'ngx_http_zk_lock_wiring.c',
     '} else if (worker->nowed != 0) {', '} else if (0) {', 12000),

    ('who only looks makes a lease shorter', 'ngx_http_zk_lock_held.c',
     '&& ttl != said->ttl\n', '\n', 12000),

    ('who shares while a list is merged is forgotten', 'zk_lock_merge.c',
     '(twin->kind != sightings[i].kind\n'
     '                 && (twin->origin != ZK_LOCK_SIBLING\n'
     '                     || !zk_lock_view_same(twin, &sightings[i])))',
     'twin->kind != sightings[i].kind', ('--rich', 12000)),


    ('held twice, released once', 'ngx_http_zk_lock_drop.c',
     'if (ask->holds == 0) {', 'if (1) {', 2000),

    ('held twice, released once elsewhere', 'ngx_http_zk_lock_drop.c',
     '&& ((label.index >= 0 && label.holds > 1)\n', '&& ((0)\n', 2000),

    ('a connection is held by nobody', 'ngx_http_zk_lock_ward.c',
     'HELD\n               && !record->bound)', 'HELD)', 2000),

    ('an heir that was faster was somebody else', 'ngx_http_zk_lock_drop.c',
     'ask->dropped = 1;\n', ';\n', 90000),

    ('a worker is believed whose session is over', 'ngx_http_zk_lock_drop.c',
     'return ngx_http_zk_lock_ahead(record->alive)\n'
     '           && (record->state',
     'return 1 || (record->state', 12000),

    ('a lapse in vain counts', 'ngx_http_zk_lock_reread.c',
     '        claim->lapsed = 0;\n', '', 4000),

    ('a record remembers all that was lost', 'ngx_http_zk_lock_record.c',
     'return ((ngx_atomic_int_t) (lost - gen) > 0) ? NGX_AGAIN : NGX_DECLINED;',
     'return NGX_DECLINED;', 12000),

    ('what was told as held elsewhere is in conflict',
     'ngx_http_zk_lock_grant.c',
     'claim->state != NGX_HTTP_ZK_LOCK_WAIT || claim->seen\n',
     'claim->state != NGX_HTTP_ZK_LOCK_WAIT\n', 12000),

    ('an ask that got no answer is not begun again', 'ngx_http_zk_lock_ask.c',
     'ask->later = (ask->handler != NULL);', 'ask->later = 0;', 12000),

    ('an ask waits without an end', 'ngx_http_zk_lock_ask.c',
     'ngx_add_timer(&ask->over, ngx_http_zk_lock_ask_time(question));', '',
     4000),

    ('an acquire waits without an end', 'ngx_http_zk_lock_grant.c',
     '{\n            ngx_http_zk_lock_claim_unreachable(claim);\n'
     '            return;\n        }\n\n        ngx_add_timer(ev, claim->once',
     '{\n            return;\n        }\n\n'
     '        ngx_add_timer(ev, claim->once', 4000),

    ('a claim that is to be deleted is waited for without an end',
     'ngx_http_zk_lock_end.c',
     'if (claim->timer.timer_set && claim->handler == NULL) {',
     'if (claim->timer.timer_set) {', 12000),

    # until when a session lives

    ('the newest write proves that a session lives',
     'ngx_http_zk_lock_pulse.c',
     '    s->proves = ngx_http_zk_lock_now() + s->timeout / 4 + '
     's->timeout / 20;',
     '    s->proves = ngx_http_zk_lock_now();',
     ('--sessions', 30000)),

    ('a session lives from its last write on',
     'ngx_http_zk_lock_pulse.c',
     '    until = ngx_http_zk_lock_session_until(s, s->touched);',
     '    until = ngx_http_zk_lock_session_until(s, sent);',
     ('--sessions', 12000)),

    ('any answer proves that a session lives',
     'ngx_http_zk_lock_flight.c',
     '    if (flight->write) {\n'
     '        ngx_http_zk_lock_session_written(s, flight, rc);\n'
     '    }\n',
     '    if (flight->write) {\n'
     '        ngx_http_zk_lock_session_written(s, flight, rc);\n'
     '    }\n'
     '    if ((ngx_msec_int_t) (flight->sent + s->timeout - '
     's->timeout / 3 - *s->alive) > 0) {\n'
     '        *s->alive = flight->sent + s->timeout - s->timeout / 3;\n'
     '    }\n',
     ('--sessions', 12000)),

    ('any answer does, with an eighth as the margin',
     'ngx_http_zk_lock_flight.c',
     '    if (flight->write) {\n'
     '        ngx_http_zk_lock_session_written(s, flight, rc);\n'
     '    }\n',
     '    if (flight->write) {\n'
     '        ngx_http_zk_lock_session_written(s, flight, rc);\n'
     '    }\n'
     '    if ((ngx_msec_int_t) (flight->sent + s->timeout - '
     's->timeout / 8 - *s->alive) > 0) {\n'
     '        *s->alive = flight->sent + s->timeout - s->timeout / 8;\n'
     '    }\n',
     ('--sessions', 12000)),

    ('a barrier is a sync',
     LIBRARY,
     '    zoo_check_op_init(&zop, (char *) op->path.data, -1);\n'
     '\n'
     '    return zoo_amulti(zh, 1, &zop, result,\n'
     '                      ngx_http_zk_lock_library_done_foreign, op);',
     '    (void) zop;\n'
     '\n'
     '    void done(int rc, const char *value, const void *data)\n'
     '    {\n'
     '        ngx_http_zk_lock_library_done_foreign(rc, data);\n'
     '    }\n'
     '\n'
     '    return zoo_async(zh, (char *) op->path.data, done, op);',
     ('--sessions', 12000)),

    # tokens, leases, late requests, keys

    ('a claim that is found has the token of another one',
     'ngx_http_zk_lock_recover.c',
     '(label.index > 0) ? label.index : 0;',
     '0;',
     1000),

    ('a late create is looked for once',
     'ngx_http_zk_lock_ward.c',
     'if (now - ward->missed >= NGX_HTTP_ZK_LOCK_LATE) {',
     'if (1) {',
     60000),

    ('a claim that queues again has no duplicates',
     'ngx_http_zk_lock_recover.c',
     '    claim->single = 0;\n',
     '',
     6000),

    # what a release tells

    ('a release is told as gone if its answer was lost',
     'ngx_http_zk_lock_drop.c',
     '        ngx_http_zk_lock_ask_tell(ask, ask->tries\n'
     '                                       ? NGX_HTTP_ZK_LOCK_ASK_OK\n'
     '                                       : NGX_HTTP_ZK_LOCK_ASK_GONE);',
     '        ngx_http_zk_lock_ask_tell(ask, NGX_HTTP_ZK_LOCK_ASK_GONE);',
     1000),

    ('what is missing was released',
     'ngx_http_zk_lock_drop.c',
     '        ngx_http_zk_lock_ask_tell(ask, ask->tries\n'
     '                                       ? NGX_HTTP_ZK_LOCK_ASK_OK\n'
     '                                       : NGX_HTTP_ZK_LOCK_ASK_GONE);',
     '        ngx_http_zk_lock_ask_tell(ask, NGX_HTTP_ZK_LOCK_ASK_OK);',
     500),

    ('a doubtful delete was that of another gateway',
     'ngx_http_zk_lock_end.c',
     'NGX_HTTP_ZK_LOCK_NO_NODE && !claim->doubtful)',
     'NGX_HTTP_ZK_LOCK_NO_NODE)',
     4000),

    ('a dead worker has not released',
     'ngx_http_zk_lock_drop.c',
     'ask->tries += !ask->ended;',
     ';',
     6000),

    # doorbells

    ('no bell hangs at a sibling ahead',
     'ngx_http_zk_lock_others.c',
     '        ngx_http_zk_lock_bell_hang(lock->worker, &other->bell,\n'
     '                                   other->id.record);\n'
     '\n'
     '        return NGX_OK;\n'
     '    }\n'
     '\n'
     '    zk_lock',
     '        return NGX_OK;\n'
     '    }\n'
     '\n'
     '    zk_lock',
     1000),

    # roll-backs

    ('the culprit goes with the others again',
     'ngx_http_zk_lock_flight.c',
     '        op->gather = 0;\n'
     '\n'
     '        ngx_http_zk_lock_session_submit(s, op);',
     '        ngx_queue_insert_head(&s->pending, q);\n'
     '        s->npending++;',
     500),

    ('a culprit is told that it was done',
     'ngx_http_zk_lock_flight.c',
     '        op->gather = 0;\n'
     '\n'
     '        ngx_http_zk_lock_session_submit(s, op);',
     '        ngx_http_zk_lock_session_fail(s, op, NGX_HTTP_ZK_LOCK_OK);',
     500),

    ('a culprit has found nothing',
     'ngx_http_zk_lock_flight.c',
     '        op->gather = 0;\n'
     '\n'
     '        ngx_http_zk_lock_session_submit(s, op);',
     '        ngx_http_zk_lock_session_fail(s, op, '
     'NGX_HTTP_ZK_LOCK_NO_NODE);',
     500),

    # heirs and records

    ('a record begins in the last cell of a chunk',
     'ngx_http_zk_lock_record.c',
     'if (k + n <= NGX_HTTP_ZK_LOCK_CHUNK\n',
     'if (k + n - 1 <= NGX_HTTP_ZK_LOCK_CHUNK\n', 12000),

    # grants told elsewhere

    ('a grant told elsewhere counts as no renewal',
     'ngx_http_zk_lock_inspect.c',
     '        label.renewals++;\n',
     '',
     500),

    ('who was told elsewhere is told that he waits',
     'ngx_http_zk_lock_inspect.c',
     'if (label.index >= 0 && !label.async) {\n',
     'if (ask->type == NGX_HTTP_ZK_LOCK_INSPECT && !label.async) {\n',
     4000),

    ('a grant told elsewhere is not written down',
     'ngx_http_zk_lock_inspect.c',
     'label.async = label.async && !info->held;',
     '',
     1000),

    ('a grant told elsewhere lasts for its grace',
     'ngx_http_zk_lock_grant.c',
     '    if (claim->seen) {\n'
     '        told = NGX_HTTP_ZK_LOCK_TOLD_OTHERS;\n'
     '\n'
     '    } else if',
     '    if',
     4000),

    # limits and ends

    ('a line has no limit',
     'ngx_http_zk_lock_grant.c',
     'if (ahead > claim->max_queue) {',
     'if (0) {',
     1000),

    ('a line has room for one more',
     'ngx_http_zk_lock_grant.c',
     'if (ahead > claim->max_queue) {',
     'if (ahead > claim->max_queue + 1) {',
     1000),

    ('a line has room for one less',
     'ngx_http_zk_lock_grant.c',
     'if (ahead > claim->max_queue) {',
     'if (ahead >= claim->max_queue) {',
     500),

    ('a line is not counted',
     'ngx_http_zk_lock_grant.c',
     'if (ahead > (int64_t) claim->max_queue) {',
     'if (0) {',
     1000),

    ('the end of a wait is not noted',
     'ngx_http_zk_lock_grant.c',
     '    claim->expired = 1;\n'
     '\n'
     '    ngx_http_zk_lock_claim_settle(claim);',
     '    ngx_http_zk_lock_claim_settle(claim);',
     500),

    ('a wait is twice as long',
     'ngx_http_zk_lock_claim.c',
     'ngx_add_timer(&claim->timer, acquire->wait);',
     'ngx_add_timer(&claim->timer, 2 * acquire->wait);',
     500),

    # planted without a look at this simulation

    ('a write proves by itself that a session lives',
     'ngx_http_zk_lock_pulse.c',
     '    until = ngx_http_zk_lock_session_until(s, s->touched);\n\n'
     '    if ((ngx_msec_int_t) (until - *s->alive) > 0) {',
     '    s->touched = sent;\n'
     '    until = ngx_http_zk_lock_session_until(s, s->touched);\n\n'
     '    if ((ngx_msec_int_t) (until - *s->alive) > 0) {',
     ('--sessions', 12000)),

    ('a lease that is made shorter ends when it would have',
     'ngx_http_zk_lock_held.c',
     'if ((ngx_msec_int_t) (lease - copy.lease) < 0) {',
     'if ((ngx_msec_int_t) (lease - copy.lease) > 0) {',
     26000),

    ('a wish that was counted is counted again',
     'ngx_http_zk_lock_held.c',
     '(cell->holds & ~NGX_HTTP_ZK_LOCK_HOLDS) == mark)',
     '(cell->holds & NGX_HTTP_ZK_LOCK_HOLDS) == mark)',
     ('--rich', 10000)),

    ('who shares gets another token',
     'ngx_http_zk_lock_share.c',
     '        if (label.czxid == 0) {\n'
     '            label.czxid = op->czxid;\n'
     '        }\n\n',
     '',
     ('--rich', 4000)),

    ('who left with a key loses the place when the wait is over',
     'ngx_http_zk_lock_claim.c',
     "        /* the wait of the client does not count any more */\n\n"
     '        claim->limited = 0;\n\n',
     '',
     10000),

    ('those who wait are in no order',
     'zk_lock_view.c',
     '    while (before != &view->waiting && before->seq > entry->seq) {\n'
     '        before = before->waiting_prev;\n'
     '    }\n',
     '',
     20000),

    ('a longer time is told while the claim becomes durable',
     'ngx_http_zk_lock_share.c',
     '    ngx_http_zk_lock_record_durable(share->zone, share->record);\n\n',
     '', 60000),

    ('a hold that went with its record is told',
     'ngx_http_zk_lock_inspect.c',
     'if (own && ask->counted && record.gen != ask->gen) {',
     'if (0) {', ('--rich', 60000)),

    ('a delete that was never sent may have happened',
     'ngx_http_zk_lock_durable.c',
     'claim->doubtful |= (claim->state == NGX_HTTP_ZK_LOCK_DELETE);',
     'claim->doubtful = 1;', 60000),

    ('a claim that is shared meanwhile is taken for gone',
     'ngx_http_zk_lock_end.c',
     '&& ngx_http_zk_lock_claim_renamed(claim) == NGX_OK)',
     '&& 0)', ('--rich', 60000)),

    ('a hold is counted in a lease that another gateway has taken over',
     'ngx_http_zk_lock_inspect.c',
     '&& (op->owner != 0 || ngx_http_zk_lock_ahead(record.alive)))',
     '&& (op->owner != 0 || ask->counted\n'
     '                   || ngx_http_zk_lock_ahead(record.alive)))',
     ('--rich', 60000)),
]


# Bugs that do harm in too few histories to be found in the time of each run:
# they are tried by name.  The first is found by t/test_known_alive.py, too.
RARE = [
    'a longer time is told while the claim becomes durable',
    'a hold that went with its record is told',
    'a delete that was never sent may have happened',
    'a claim that is shared meanwhile is taken for gone',
    'a late create is looked for once',
    'a lease that is made shorter ends when it would have',
    'the holds of a claim that was taken over are counted in its old record',
    'an heir that was faster was somebody else',
    'a record that is taken over is found half made',
    'granted without a look at the session',
    'one of several that queued again has no leader',
    'a worker leaves whom it owes an answer',
    'who shares while a list is merged is forgotten',
    'a record remembers all that was lost',
    'what was told as held elsewhere is in conflict',
    'any answer proves that a session lives',
    'contiguity is kept over a reaped parent',
    'a hold is counted in a lease that another gateway has taken over',
    'a watch on a claim that is counted elsewhere outlives its session',
]


def taken_in(library):
    """Returns gsim_library.c with that text in the place of its include."""

    with open('t/gsim/gsim_library.c') as source:
        text = source.read()

    header = os.path.abspath('t/gsim/gsim.h')

    return text.replace(f'#include "../../src/{LIBRARY}"', library).replace(
        '"gsim.h"', f'"{header}"')


def look(program, traits, first, seeds):
    """Returns what is wrong, or None; the first seed that fails; why."""

    done = subprocess.run([program, '--from', str(first),
                           '--seeds', str(max(seeds, 0)), *traits],
                          capture_output=True, text=True, errors='replace',
                          timeout=600)

    if done.returncode == 0:
        return f'not found in {seeds} histories', None, None

    seed = re.search(r'failed: seed (\d+)', done.stdout)
    says = re.search(r'VIOLATION: (.*)', done.stdout)

    if seed is None or says is None:
        return f'status {done.returncode}: {done.stderr[-500:]}', None, None

    return None, int(seed.group(1)), says.group(1)


def run(build, number, mutant):
    """Returns None, or what is wrong; prints what was found."""

    name, file, there, instead, seeds = mutant

    with open(f'src/{file}') as source:
        text = source.read()

    if text.count(there) != 1:
        return f'the text is {text.count(there)} times in src/{file}'

    folder = f'{build}/mutants'
    os.makedirs(folder, exist_ok=True)

    mutated = f'{folder}/{number}-{file}'
    program = f'{folder}/{number}'
    o = f'{folder}/{number}.o'
    unit = file

    text = text.replace(there, instead)

    if file == LIBRARY:
        unit = 'gsim_library.c'
        text = taken_in(text)

    with open(mutated, 'w') as out:
        out.write(text)

    objects = [f'{build}/{f}' for f in sorted(os.listdir(build))
               if f.endswith('.o') and f != unit.replace('.c', '.o')]

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

        # a history that goes wrong by itself says nothing of the mutant

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
