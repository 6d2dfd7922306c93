
/*
 * What the parts of the hand-over program share: its options, a connection, and
 * what is counted at every grant.
 */


#ifndef _HANDOVER_H_INCLUDED_
#define _HANDOVER_H_INCLUDED_


#include "histogram.h"
#include "load.h"


#define SECOND_NS       1000000000.0


/* one keep-alive connection with one request under way, or none */

typedef struct {
    client_t     client;
    int          holds;
    int          status;            /* of the last answer */
    long         worker;            /* its pid, of X-Worker; 0: not told */
    char         buffer[4096];
} conn_t;


typedef struct {
    const char  *way;
    const char  *dialect;
    int          many;              /* names */
    int          port;
    int          other_port;        /* 0: none */
    int          rounds;
    int          gap_ms;
    double       bound;             /* seconds for an answer */
    int          clients;           /* 0: the two of a hand-over */
    double       seconds;
    double       warm_up;
    const char  *name;
} settings_t;


typedef struct {
    histogram_t  grants;            /* from a release to the next grant */
    histogram_t  releases;          /* from a release to its answer */

    uint64_t     overlaps;          /* grants while another one held */
    uint64_t     backwards;         /* fencing tokens that did not grow */
    uint64_t     wrong;             /* answers that were not expected */
    int          stuck;             /* grants that did not come in time */

    conn_t      *holder;
    int64_t      fencing;           /* of the last grant */
    uint64_t     released;          /* when the last release was sent */
} tally_t;


extern settings_t        settings;
extern tally_t           tally;
extern const dialect_t  *dialect;


void hand_overs(void);
void queue_loop(void);
void names_loop(void);

conn_t *conns_open(int *epoll);
void conn_open(conn_t *c, int port);
void conn_close(conn_t *c);
void conn_ask(conn_t *c, step_e step);
void conn_ask_as(conn_t *c, step_e step, const char *text, int len);
void conn_get(conn_t *c, const char *path);
int conn_take(conn_t *c);
int conn_await(conn_t *c);

void die(const char *what);


#endif /* _HANDOVER_H_INCLUDED_ */
