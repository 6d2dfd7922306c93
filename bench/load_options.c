
/* What a load is told on its command line. */


#define _GNU_SOURCE

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "load.h"


#define CLIENTS_MAX     16384

/* what is appended to it has room in a client's name */
#define PREFIX_MAX      40


static int options_take(options_t *options, int opt, const char *value);
static int options_take_port(options_t *options, const char *value);
static int options_fit(const options_t *options);


/* ends the program if it cannot be done */

void
options_parse(int argc, char **argv, options_t *options)
{
    int  opt, good;

    memset(options, 0, sizeof(options_t));

    options->dialect = dialect_find("gateway");
    options->nclients = 1;
    options->seconds = 5;
    options->warm_up = 0.5;
    options->retry_ms = 2;
    options->name = "load";

    good = 1;

    while ((opt = getopt(argc, argv, "p:c:t:w:d:on:N:r:g:")) != -1) {
        good = good && options_take(options, opt, optarg);
    }

    if (good && optind == argc && options_fit(options)) {
        return;
    }

    fprintf(stderr, "usage: load -p PORT [-p PORT]... -c CLIENTS -t SECONDS "
            "[-w SECONDS]\n            [-d gateway|three|one|etcd|webdis] "
            "[-o | -N COUNT] [-n NAME] [-r MS] [-g MS]\n");
    exit(2);
}


static int
options_take(options_t *options, int opt, const char *value)
{
    switch (opt) {
    case 'p':
        return options_take_port(options, value);
    case 'c':
        options->nclients = atoi(value);
        return 1;
    case 't':
        options->seconds = atof(value);
        return 1;
    case 'w':
        options->warm_up = atof(value);
        return 1;
    case 'd':
        options->dialect = dialect_find(value);
        return 1;
    case 'o':
        options->one_lock = 1;
        return 1;
    case 'n':
        options->name = value;
        return 1;
    case 'N':
        options->nnames = atoi(value);
        return options->nnames > 0;
    case 'r':
        options->retry_ms = atof(value);
        return 1;
    case 'g':
        options->pause_ms = atof(value);
        return 1;
    default:
        return 0;
    }
}


static int
options_take_port(options_t *options, const char *value)
{
    int  port;

    port = atoi(value);

    if (options->nports == PORTS_MAX || port <= 0 || port > 65535) {
        return 0;
    }

    options->ports[options->nports++] = port;

    return 1;
}


static int
options_fit(const options_t *options)
{
    if (options->nnames > 0
        && (options->one_lock || options->nnames < options->nclients))
    {
        return 0;
    }

    return options->nports > 0
           && options->dialect != NULL
           && options->seconds > 0
           && options->warm_up >= 0
           && options->retry_ms > 0
           && options->pause_ms >= 0
           && (options->pause_ms == 0 || !options->one_lock)
           && options->nclients >= 1
           && options->nclients <= CLIENTS_MAX
           && strlen(options->name) <= PREFIX_MAX;
}
