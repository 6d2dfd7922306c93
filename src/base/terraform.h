
/*
 * What Terraform and OpenTofu send to lock a state: an object that says who
 * wants to do what, with an ID that the client makes up and knows its lock by.
 *
 * Plain C, no nginx, no ZooKeeper.  What is read is the caller's and of a
 * fixed size.  Every function may be called from any thread.
 */


#ifndef _ZKL_TERRAFORM_H_INCLUDED_
#define _ZKL_TERRAFORM_H_INCLUDED_


#include <stddef.h>
#include <stdint.h>

#include "base/json.h"


/* bytes of an ID; a UUID in practice */
#define ZKL_TERRAFORM_ID_MAX        255


typedef struct {
    size_t          id_len;
    size_t          who_len;        /* 0: nobody that could be shown */
    size_t          data_len;

    unsigned        too_large:1;    /* the reason of an error */

    char            id[ZKL_TERRAFORM_ID_MAX + 1];       /* no controls */
    char            who[ZKL_OWNER_MAX + 1];             /* no controls */
    char            data[ZKL_DATA_MAX + 1];             /* compact JSON */

    /* a sentence in UTF-8, if a read failed */
    char            error[ZKL_ERROR_MAX];
} zkl_terraform_t;


/*
 * Reads a request's body.  Returns 0 and fills t: id is the member "ID", who
 * the member "Who" if that can be an owner, and data the whole of the object,
 * with its members as they came.  Returns 1 if the object has no string "ID",
 * or an empty one: then it is somebody else's.  Returns -1 with t->error if
 * the body is no JSON object, or if it has an "ID" that is too long, has
 * control characters in it or is there twice, or is too deep or (then
 * too_large is set) too long to be kept.
 */
int zkl_terraform_read(zkl_terraform_t *t, const char *text, size_t len);


#endif /* _ZKL_TERRAFORM_H_INCLUDED_ */
