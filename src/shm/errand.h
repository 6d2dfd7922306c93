
/*
 * Errands: how a worker asks a sibling to do something with a claim, which only
 * the claim's own worker may change.
 */


#ifndef _ZKL_ERRAND_H_INCLUDED_
#define _ZKL_ERRAND_H_INCLUDED_


#include "shm/zone.h"


#define ZKL_NO_ERRAND                 ((ngx_uint_t) -1)


/*
 * Tells of an errand of a sibling, which this worker has taken; or, replied, of
 * one of this worker's that is to be freed: then only n is good.
 */
typedef void (*zkl_errand_pt)(void *data, ngx_uint_t n, zkl_errand_t *errand,
    ngx_uint_t replied);


/*
 * Sends the errand to the worker that keeps the slot of that record, and rings
 * that worker.  *n is the errand's number, until zkl_errand_free().
 * NGX_DECLINED: this worker or no process keeps the slot; NGX_BUSY: too many
 * errands are under way.
 */
ngx_int_t zkl_errand_send(zkl_zone_t *zone, uint32_t record,
    zkl_errand_t *errand, ngx_uint_t *n);

/*
 * Does not wait for an own errand any longer, and copies what is known by then.
 * NGX_OK: the reply; NGX_DECLINED: the sibling has not begun, and never does;
 * NGX_AGAIN: the sibling has begun.  Then the errand is free if the sibling is
 * dead; else the handler is called with the reply, and frees the errand.
 */
ngx_int_t zkl_errand_free(zkl_zone_t *zone, ngx_uint_t n,
    zkl_errand_t *errand);

/*
 * Calls handler for each errand that this worker was rung for or, with all, for
 * each that is this worker's to take or to free.
 */
void zkl_errand_take(zkl_zone_t *zone, ngx_uint_t all, zkl_errand_pt handler,
    void *data);

/* For the worker that took an errand; reply() rings the asking worker. */
void zkl_errand_begun(zkl_zone_t *zone, ngx_uint_t n, ngx_uint_t begun);
void zkl_errand_reply(zkl_zone_t *zone, ngx_uint_t n, ngx_uint_t reply);


#endif /* _ZKL_ERRAND_H_INCLUDED_ */
