
/*
 * The merge of a list of children into the view: who of the list is known, who
 * is known and not in the list any more, and who is new.
 *
 * A list is older than what came to be known since it was sent: the mark tells
 * which that is.  And it may be of another parent than what was known before,
 * which shows in somebody else in a known claim's place.
 *
 * Owns nothing; runs on any thread, for one view by one at a time.
 */


#include <stdlib.h>

#include "zk_lock_view.h"


static int zk_lock_view_compare(const void *one, const void *two);
static int zk_lock_view_match(zk_lock_view_t *view,
    zk_lock_sighting_t *sightings, size_t n);
static int zk_lock_view_same(zk_lock_entry_t *entry,
    zk_lock_sighting_t *sighting);
static int zk_lock_view_doubtful(zk_lock_view_t *view, zk_lock_entry_t *entry);
static void zk_lock_view_sweep(zk_lock_view_t *view, uint64_t mark,
    int64_t last, int anew, zk_lock_view_gone_pt gone, void *data);
static int zk_lock_view_add(zk_lock_view_t *view, zk_lock_sighting_t *s,
    zk_lock_view_make_pt make, void *data);


uint64_t
zk_lock_view_mark(zk_lock_view_t *view)
{
    return view->tick;
}


int
zk_lock_view_merge(zk_lock_view_t *view, uint64_t mark,
    zk_lock_sighting_t *sightings, size_t n, zk_lock_view_make_pt make,
    zk_lock_view_gone_pt gone, void *data)
{
    int      anew;
    size_t   i;
    int64_t  last;

    if (n > 1) {
        qsort(sightings, n, sizeof(zk_lock_sighting_t), zk_lock_view_compare);
    }

    last = (n != 0) ? sightings[n - 1].seq : -1;

    anew = zk_lock_view_match(view, sightings, n);

    zk_lock_view_sweep(view, mark, last, anew, gone, data);

    if (anew) {
        view->complete_through = -1;
    }

    for (i = 0; i < n; i++) {
        if (zk_lock_view_add(view, &sightings[i], make, data) != 0) {
            return -1;
        }
    }

    if (last > view->complete_through) {
        view->complete_through = last;
    }

    zk_lock_view_pass(view);

    return 0;
}


static int
zk_lock_view_compare(const void *one, const void *two)
{
    const zk_lock_sighting_t  *a, *b;

    a = one;
    b = two;

    if (a->seq != b->seq) {
        return (a->seq < b->seq) ? -1 : 1;
    }

    return (int) b->kind - (int) a->kind;
}


/* Returns 1 if a claim has somebody else in its place. */

static int
zk_lock_view_match(zk_lock_view_t *view, zk_lock_sighting_t *sightings,
    size_t n)
{
    int               anew;
    size_t            i;
    zk_lock_entry_t  *entry, *twin;

    anew = 0;
    entry = view->alive.next;

    for (i = 0; i < n; i++) {

        while (entry != &view->alive && entry->seq < sightings[i].seq) {
            entry = entry->next;
        }

        /* a downgraded writer and its reader share a seq */

        for (twin = entry;
             twin != &view->alive && twin->seq == sightings[i].seq;
             twin = twin->next)
        {
            /* a sibling may have shared it since it was sighted */

            if ((twin->kind != sightings[i].kind
                 && (twin->origin != ZK_LOCK_SIBLING
                     || !zk_lock_view_same(twin, &sightings[i])))
                || sightings[i].gone || zk_lock_view_doubtful(view, twin))
            {
                continue;
            }

            if (zk_lock_view_same(twin, &sightings[i])) {
                twin->listed = 1;
                sightings[i].entry = twin;

            } else {
                anew = 1;
            }
        }
    }

    return anew;
}


static int
zk_lock_view_same(zk_lock_entry_t *entry, zk_lock_sighting_t *sighting)
{
    if (entry->origin == ZK_LOCK_LOCAL || sighting->entry != NULL) {
        return sighting->entry == entry;
    }

    return sighting->who == entry->who;
}


/*
 * A writer may drop its reader and make another one, which differs only in its
 * name.  While the writer is there, that does not matter; when it is gone, the
 * reader of the list is taken, and the one that was known is swept.
 */

static int
zk_lock_view_doubtful(zk_lock_view_t *view, zk_lock_entry_t *entry)
{
    zk_lock_entry_t  *writer;

    if (entry->origin != ZK_LOCK_FOREIGN || entry->kind != ZK_LOCK_READ) {
        return 0;
    }

    if (entry->seq > view->complete_through) {
        return 1;
    }

    /* the list's writers come first, so they are matched already */

    for (writer = entry->prev;
         writer != &view->alive && writer->seq == entry->seq;
         writer = writer->prev)
    {
        if (writer->kind == ZK_LOCK_WRITE) {
            return !writer->listed;
        }
    }

    return 0;
}


/*
 * An entry that the list does not show is gone, if the list is sure to be
 * younger than the entry: it was known on this session when the list was sent,
 * or the list shows a claim that was created later.  A sibling may be known
 * from elsewhere than this session, so only the second holds for it; but if
 * the parent was made anew, what was known before is gone in any case.
 */

static void
zk_lock_view_sweep(zk_lock_view_t *view, uint64_t mark, int64_t last,
    int anew, zk_lock_view_gone_pt gone, void *data)
{
    int               younger;
    zk_lock_entry_t  *entry, *next;

    for (entry = view->alive.next; entry != &view->alive; entry = next) {
        next = entry->next;

        if (entry->listed) {
            entry->listed = 0;
            continue;
        }

        younger = entry->seq < last + anew
                  || ((entry->origin != ZK_LOCK_SIBLING || anew)
                      && entry->tick <= mark);

        if (younger) {
            zk_lock_view_remove(view, entry);
            zk_lock_view_doubt(view, entry);
            gone(data, entry);
        }
    }
}


static int
zk_lock_view_add(zk_lock_view_t *view, zk_lock_sighting_t *s,
    zk_lock_view_make_pt make, void *data)
{
    zk_lock_entry_t  *entry;

    if (s->gone || (s->entry != NULL && s->entry->linked)) {
        return 0;
    }

    entry = s->entry;

    if (entry == NULL) {

        if (s->seq <= view->complete_through) {
            /* known already, as gone: its delete is under way */
            return 0;
        }

        entry = make(data, s);
        if (entry == NULL) {
            return -1;
        }

        entry->seq = s->seq;
        entry->kind = s->kind;
        entry->who = s->who;

    } else {
        entry->seq = s->seq;
        entry->kind = s->kind;
        entry->origin = ZK_LOCK_LOCAL;
    }

    zk_lock_view_link(view, entry);

    return 0;
}
