
/*
 * The lock information that Terraform and OpenTofu send to lock a state: an
 * object that names the user and the operation, with an ID that the client
 * makes up and knows the lock by.
 *
 * Plain C, no nginx, no ZooKeeper.  The caller owns the structure, which has a
 * fixed size.  Any thread may call the function.
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
    size_t          who_len;        /* 0: none, or not printable */
    size_t          data_len;

    unsigned        too_large:1;    /* why the read failed */

    char            id[ZKL_TERRAFORM_ID_MAX + 1];       /* no controls */
    char            who[ZKL_OWNER_MAX + 1];             /* no controls */
    char            data[ZKL_DATA_MAX + 1];             /* compact JSON */

    /* a sentence in UTF-8, if a read failed */
    char            error[ZKL_ERROR_MAX];
} zkl_terraform_t;


/*
 * Reads a request's body.  Returns 0 and fills t: id is the member "ID", who
 * the member "Who" if that can be an owner, and data the whole object, members
 * in the order sent.  Returns 1 if the object has no string "ID" or an empty
 * "ID": then the object is not Terraform's.  Returns -1 with t->error if the
 * body is no JSON object, if "ID" is too long, has control characters or is
 * there twice, or if the object is too deep or (too_large) too long for data.
 */
int zkl_terraform_read(zkl_terraform_t *t, const char *text, size_t len);


#endif /* _ZKL_TERRAFORM_H_INCLUDED_ */
