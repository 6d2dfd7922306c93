
/*
 * JSON, read in the plainest way: the whole text at once, by recursion, as
 * RFC 8259 says, and UTF-8 as RFC 3629 says.  The fuzzers compare the results
 * of base/json.c with the results of this reader.
 */


#ifndef _NAIVE_JSON_H_INCLUDED_
#define _NAIVE_JSON_H_INCLUDED_


#include <stddef.h>


/* bytes of the longest text; a compact text is at most six times longer */
#define NAIVE_TEXT      4096
#define NAIVE_COMPACT   (6 * NAIVE_TEXT)
#define NAIVE_MEMBERS   256


/* the first byte of a value, with '0' for numbers and 't' for false, too */

typedef struct {
    char        type;
    char       *name;           /* decoded */
    size_t      name_len;
    char       *text;           /* a string: decoded; else compact */
    size_t      len;
    unsigned    depth;          /* 0: no array, no object */
} naive_member_t;


typedef struct {
    int             valid;
    char            type;       /* of the whole */
    unsigned        depth;
    size_t          len;        /* of the compact text, 0 beside an empty one */
    char            compact[NAIVE_COMPACT];

    /* the members of an object */
    size_t          nmembers;
    naive_member_t  members[NAIVE_MEMBERS];

    /* work */
    size_t          used;
    char            store[2 * NAIVE_COMPACT];
} naive_json_t;


/* reads text, of up to NAIVE_TEXT bytes */
void naive_json(naive_json_t *json, const char *text, size_t len);

/* whether text is UTF-8, and without control characters, too */
int naive_utf8(const char *text, size_t len);
int naive_shown(const char *text, size_t len);


#endif /* _NAIVE_JSON_H_INCLUDED_ */
