#!/usr/bin/python3
"""Breaks src/ in one place at a time, and has the simulation find it.

usage: mutants.py BUILD [NAME]...

BUILD has the objects of gateway_sim.  Each mutant is one file of src/ with
one text replaced, compiled and linked with the others; MUTANT_CC and
MUTANT_LINK say how.  A text that is not there exactly once, a mutant that does
not compile, and one that is not found within its seeds, are failures.
"""

import concurrent.futures
import os
import re
import shlex
import subprocess
import sys

# name, file, what is there, what is put in its place, and how many seeds; or
# the first one and how many, for what harms too seldom

MUTANTS = [
    ('a gap is trusted', 'zk_lock_view.c',
     'if (entry->seq == 0 || (view->complete_through != -1\n'
     '                            && entry->seq == '
     'view->complete_through + 1))\n',
     'if (1)\n', 2000),

    ('contiguity is kept over a reaped parent', 'ngx_http_zk_lock_guard.c',
     'op->rc == NGX_HTTP_ZK_LOCK_OK && op->czxid < lock->guarded)',
     'op->rc == NGX_HTTP_ZK_LOCK_OK)', 40000),

    ('a reader passes a writer', 'zk_lock_view.c',
     'return ahead != ZK_LOCK_READ || behind != ZK_LOCK_READ;',
     'return ahead != ZK_LOCK_WRITE || behind != ZK_LOCK_READ;', 2000),

    ('nothing is listed after a gap', 'zk_lock_view.c',
     'if ((*waiter)->seq > view->complete_through) {\n'
     '        return ZK_LOCK_COMPLETE;',
     'if ((*waiter)->seq > view->complete_through) {\n'
     '        return ZK_LOCK_NOTHING;', 2000),

    ('the watch moves past a live claim', 'ngx_http_zk_lock_guard.c',
     '/* its data were set, and it is watched anew */\n',
     'ngx_http_zk_lock_lock_vanished((ngx_http_zk_lock_other_t *) entry);\n'
     '    return;\n', 20000),

    ('nothing is synced behind a new connection',
     'ngx_http_zk_lock_session.c',
     'ngx_http_zk_lock_session_send(op);\n\n    if (!s->gated',
     'ngx_http_zk_lock_session_free_op(op);\n\n    if (!s->gated', 20000),

    ('granted without a look at the session', 'ngx_http_zk_lock_pulse.c',
     'return s->state == NGX_HTTP_ZK_LOCK_CONNECTED\n'
     '           && ngx_http_zk_lock_ahead(*s->alive);',
     'return s->state == NGX_HTTP_ZK_LOCK_CONNECTED;', 20000),

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
     'if (map->slots[home].nginx != map->nginx) {', 'if (1) {', 2000),

    ('what is held goes with its worker', 'ngx_http_zk_lock_ward.c',
     'ward->state = NGX_HTTP_ZK_LOCK_WARD_READ;\n\n'
     '        /* from here on',
     'ward->state = NGX_HTTP_ZK_LOCK_WARD_DELETE;\n\n'
     '        /* from here on', 5000),

    ('the tokens of a transaction fall',
     'ngx_http_zk_lock_claim.c',
     'return czxid * 256 + (int64_t) index;',
     'return czxid * 256 + 255 - (int64_t) index;', 60000),

    ('a held session is closed in a reload', 'ngx_http_zk_lock_worker.c',
     '|| (ngx_http_zk_lock_worker_holds(worker)\n'
     '                && ngx_http_zk_lock_zone_outlives(zone));',
     '|| (0);', 5000),

    ('children of a list are leaked', 'ngx_http_zk_lock_op.c',
     'if (op->children != NULL) {\n        free(op->children);\n    }\n\n',
     '', 2000),

    # what this simulation has found once

    ('refused again in the same turn', 'ngx_http_zk_lock_flight.c',
     'the message that the session is over.\n     */\n\n'
     '    ngx_post_event(&s->flush, &ngx_posted_next_events);',
     'the message that the session is over.\n     */\n\n'
     '    ngx_post_event(&s->flush, &ngx_posted_events);', (1, 60000)),

    ('a grant is told though its lease is over',
     'ngx_http_zk_lock_grant.c',
     'ngx_http_zk_lock_claim_answer(claim, NGX_HTTP_ZK_LOCK_UNREACHABLE);\n'
     '    }\n\n    return NGX_OK;',
     '    }\n\n    return NGX_OK;', 20000),

    ('an heir deletes what was told as held elsewhere',
     'ngx_http_zk_lock_ward.c',
     'ward->alone = (record->ttl != 0 && !record->bound',
     'ward->alone = (0 && !record->bound', 5000),

    ('a worker deletes what was told as held elsewhere',
     'ngx_http_zk_lock_reread.c',
     'return claim->grace != 0 && !claim->bound && label->index >= 0\n'
     '           && !label->async;',
     'return 0;', 20000),

    ('a repeat joins whom it sees first', 'ngx_http_zk_lock_grant.c',
     'claim->twin = child;\n            seq = child.seq;\n',
     'if (seq == claim->entry.seq) {\n                claim->twin = child;\n'
     '            }\n            seq = child.seq;\n', 20000),

    ('a renewal is known before it counts', 'ngx_http_zk_lock_held.c',
     'ngx_http_zk_lock_record_extend(cell, ttl, seen);\n\n'
     '    (void) ngx_http_zk_lock_record_saw(&cell->renewals, renewals);\n',
     '(void) ngx_http_zk_lock_record_saw(&cell->renewals, renewals);\n\n'
     '    ngx_http_zk_lock_record_extend(cell, ttl, seen);\n', 60000),

    ('a worker leaves whom it owes an answer', 'ngx_http_zk_lock_wiring.c',
     '} else if (worker->nowed != 0) {', '} else if (0) {', 60000),

    ('who only looks makes a lease shorter', 'ngx_http_zk_lock_held.c',
     '&& ttl != said->ttl\n', '\n', 30000),

    ('a ward goes by any name', 'ngx_http_zk_lock_estate.c',
     '|| child.kind != ward->kind\n', '\n', (14000, 30000)),

    ('who shares while a list is merged is forgotten', 'zk_lock_merge.c',
     '(twin->kind != sightings[i].kind\n'
     '                 && (twin->origin != ZK_LOCK_SIBLING\n'
     '                     || !zk_lock_view_same(twin, &sightings[i])))',
     'twin->kind != sightings[i].kind', (130000, 10000)),


    ('held twice, released once', 'ngx_http_zk_lock_drop.c',
     'if (ask->holds == 0) {', 'if (1) {', 2000),

    ('held twice, released once elsewhere', 'ngx_http_zk_lock_drop.c',
     '&& ((label.index >= 0 && label.holds > 1)\n', '&& ((0)\n', 2000),

    ('a connection is held by nobody', 'ngx_http_zk_lock_ward.c',
     'HELD\n               && !record->bound)', 'HELD)', 2000),

    ('an heir that was faster was somebody else', 'ngx_http_zk_lock_drop.c',
     'ask->dropped = 1;\n', ';\n', 4000),

    ('a worker is believed whose session is over', 'ngx_http_zk_lock_drop.c',
     'return ngx_http_zk_lock_ahead(record->alive)\n'
     '           && (record->state',
     'return 1 || (record->state', 20000),

    ('a lapse in vain counts', 'ngx_http_zk_lock_reread.c',
     'claim->lapsed = 0;\n', '', 4000),

    ('a record remembers all that was lost', 'ngx_http_zk_lock_record.c',
     'return ((ngx_atomic_int_t) (lost - gen) > 0) ? NGX_AGAIN : NGX_DECLINED;',
     'return NGX_DECLINED;', (420013000, 3000)),

    ('what was told as held elsewhere is in conflict',
     'ngx_http_zk_lock_grant.c',
     'claim->state != NGX_HTTP_ZK_LOCK_WAIT || claim->seen\n',
     'claim->state != NGX_HTTP_ZK_LOCK_WAIT\n', (510704000, 3000)),
]


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

    with open(mutated, 'w') as out:
        out.write(text.replace(there, instead))

    objects = [f'{build}/{f}' for f in sorted(os.listdir(build))
               if f.endswith('.o') and f != file.replace('.c', '.o')]

    subprocess.run(shlex.split(os.environ['MUTANT_CC'])
                   + ['-w', '-c', '-o', o, mutated], check=True)
    subprocess.run(shlex.split(os.environ['MUTANT_LINK'])
                   + ['-o', program, o, *objects, '-lyajl', '-lpthread'],
                   check=True)

    first, seeds = seeds if isinstance(seeds, tuple) else (1, seeds)

    done = subprocess.run([program, '--from', str(first),
                           '--seeds', str(seeds)],
                          capture_output=True, text=True, errors='replace',
                          timeout=600)

    if done.returncode == 0:
        return f'not found in {seeds} histories'

    seed = re.search(r'failed: seed (\d+)', done.stdout)
    says = re.search(r'VIOLATION: (.*)', done.stdout)

    if seed is None or says is None:
        return f'status {done.returncode}: {done.stderr[-500:]}'

    says = re.sub(r'_c_[0-9a-f]{8}-[0-9a-f-]{27}-', '_c_...-', says.group(1))
    print(f'ok: {name}: seed {seed.group(1)}: {says[:100]}', flush=True)

    os.remove(program)

    return None


def main():
    build, *names = sys.argv[1:]
    failed = 0
    mutants = [m for m in MUTANTS if not names or m[0] in names]

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
