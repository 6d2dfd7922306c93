
/*
 * Errands: how a worker asks a sibling to do something with a claim, which only
 * the claim's own worker may change.
 */


#ifndef _ZKL_ERRAND_H_INCLUDED_
#define _ZKL_ERRAND_H_INCLUDED_


#include "shm/zone.h"


#define ZKL_NO_ERRAND                 ((ngx_uint_t) -1)


/* how far an errand is; errand.c tells which of the two workers sets what */

typedef enum {
    ZKL_ERRAND_IDLE = 0,            /* none, or called back: the sibling does
                                       nothing that must not be done twice */
    ZKL_ERRAND_ASKED,
    ZKL_ERRAND_KEPT,                /* the reply comes later */
    ZKL_ERRAND_COUNTS,              /* as KEPT, and a hold may be counted */
    ZKL_ERRAND_ENDS,                /* as KEPT, and the claim may be deleted */
    ZKL_ERRAND_REPLIED              /* and above: more the reply */
} zkl_errand_e;


/*
 * Sends the errand to the worker that keeps the slot of that record, and rings
 * that worker.  Returns the errand's number, until zkl_errand_free();
 * ZKL_NO_ERRAND: this worker or no process keeps the slot, or too many errands
 * are under way.
 */
ngx_uint_t zkl_errand_send(zkl_zone_t *zone, uint32_t record,
    zkl_errand_t *errand);

/*
 * Does not wait for an own errand any longer.  Returns how far the errand is, a
 * zkl_errand_e; IDLE: called back.  In KEPT, COUNTS and ENDS the errand is free
 * if the sibling is dead, else look() tells of the reply, and the caller frees
 * the errand.
 */
ngx_uint_t zkl_errand_free(zkl_zone_t *zone, ngx_uint_t n);

/*
 * Looks at an errand that this worker was rung for, or that may be there.
 * NGX_OK: a sibling's errand is to be served; *word is the word of the place,
 * for begin() and reply().  NGX_DONE: an own errand is to be freed.
 * NGX_DECLINED: neither.
 */
ngx_int_t zkl_errand_look(zkl_zone_t *zone, ngx_uint_t n, zkl_errand_t *errand,
    ngx_atomic_uint_t *word);

/*
 * For the worker that is asked.  begin() sets how far the errand is, before the
 * worker keeps the errand, or does what must not be done twice; NGX_DECLINED:
 * the errand was called back, and is none any more.  reply() replies with a
 * number up to 200, unless the errand was called back, and rings the asker.
 */
ngx_int_t zkl_errand_begin(zkl_zone_t *zone, ngx_uint_t n,
    ngx_atomic_uint_t *word, zkl_errand_e state);
void zkl_errand_reply(zkl_zone_t *zone, ngx_uint_t n, ngx_atomic_uint_t word,
    ngx_uint_t reply);


#endif /* _ZKL_ERRAND_H_INCLUDED_ */
