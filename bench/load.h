
/*
 * What the parts of the load generator share: a client, the client's answer, a
 * dialect, which has the requests for one sort of server, and the options.
 */


#ifndef _LOAD_H_INCLUDED_
#define _LOAD_H_INCLUDED_


#include <stddef.h>
#include <stdint.h>


#define NAME_MAX_LEN    63
#define TOKEN_MAX_LEN   255
#define REQUEST_MAX     1024

#define PORTS_MAX       16

#define BROKEN          ((size_t) -1)


/* the step of a client; a dialect has a request for each step */

typedef enum {
    OPENING = 0,                    /* before the measurement, once */
    ACQUIRING,
    SERVING,                        /* under the lock */
    RELEASING,
    CLOSING,                        /* after the measurement, once */
    NSTEPS,
    IDLE = NSTEPS
} step_e;


typedef enum {
    DONE = 0,
    TAKEN,                          /* no lock yet: try again later */
    WRONG
} outcome_e;


typedef struct client_s  client_t;

struct client_s {
    int          fd;
    int          number;
    int          name_number;       /* of many names, the one in use */
    step_e       step;
    uint64_t     began;             /* the cycle; ns */
    uint64_t     granted;
    uint64_t     due;               /* the next try */
    client_t    *next;              /* in the queue of clients that rest, */
                                    /* or of holders */

    char         name[NAME_MAX_LEN + 1];
    char         session[TOKEN_MAX_LEN + 1];    /* a lease, a script */
    char         token[TOKEN_MAX_LEN + 1];      /* that releases */
    int64_t      fencing;           /* -1: none */

    size_t       len;               /* bytes of the answer read so far */
    size_t       size;
    char        *buffer;
};


/* head and body are strings */

typedef struct {
    int          status;
    char        *head;
    char        *body;
} answer_t;


typedef struct {
    int        (*ask)(client_t *c, char *text, size_t size);
    outcome_e  (*hear)(client_t *c, const answer_t *answer);
} step_t;


typedef struct {
    const char  *name;
    int          fencing;           /* its grants have numbers that grow */
    step_t       steps[NSTEPS];     /* a step without a request is zeroed */
} dialect_t;


typedef struct {
    const dialect_t  *dialect;
    int               ports[PORTS_MAX];
    int               nports;
    int               one_lock;
    int               nnames;           /* 0: one for each client */
    int               nclients;
    double            seconds;
    double            warm_up;
    double            retry_ms;
    double            pause_ms;         /* between two cycles */
    const char       *name;
} options_t;


void options_parse(int argc, char **argv, options_t *options);

const dialect_t *dialect_find(const char *name);

size_t http_answer(char *text, size_t len, answer_t *answer);
const char *http_header(const char *head, const char *name);


#endif /* _LOAD_H_INCLUDED_ */
