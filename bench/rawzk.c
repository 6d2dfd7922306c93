
/*
 * What ZooKeeper's own C client does without a gateway: one session that
 * creates and deletes ephemeral sequential znodes, a number of pairs in flight.
 *
 *   rawzk -s HOST:PORT -c IN-FLIGHT -t SECONDS [-w SECONDS] [-r ROOT] [-a]
 *         [-g MS]
 *
 * Each of the -c slots has a separate parent, ROOT/slot-N, and in a closed loop
 * creates a child with the name and the size of a claim, deletes the child
 * after the answer, and so on.  A lock that is known to be free cannot cost
 * less, if each change is one request; a lock recipe also lists and watches.
 *
 * With -a a slot creates the next child right behind the delete, and does not
 * wait for the answer to the delete: in the same way a guarded request follows
 * the request before, because the client has the answer before the claim is
 * deleted.  A cycle is a create then.  With -g a single slot rests for MS
 * before the next create.
 *
 * All work is done in completions, on the library's own thread, as soon as
 * answers are there.  The result is one JSON object on stdout.
 */


#define _GNU_SOURCE

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <zookeeper/zookeeper.h>

#include "histogram.h"


#define SLOTS_MAX           4096
#define PATH_MAX_LEN        256
#define CONNECT_SECONDS     10
#define DRAIN_SECONDS       10

#define SECOND_NS           1000000000.0

/* as long as a claim's name is, without its number */
#define CHILD               "_c_01234567-89ab-4def-8123-456789abcdef-lock-"

/* as long as a claim's data is about */
#define DATA                "{\"ttl_ms\":60000,\"index\":\"000\"}"


typedef struct {
    uint64_t         began;
    uint64_t         created;
    char             prefix[PATH_MAX_LEN];
} slot_t;


static void parse_options(int argc, char **argv);
static void usage(void);
static void watcher(zhandle_t *handle, int type, int state, const char *path,
    void *context);
static void make(const char *path);
static void slot_create(slot_t *slot);
static void slot_created(int rc, const char *path, const void *data);
static void slot_deleted(int rc, const void *data);
static void slot_done(slot_t *slot);
static void busy(int n);
static void wait_for_all(void);
static void die(const char *what, int rc);


static const char      *servers;
static const char      *root = "/raw";
static int              nslots = 1;
static double           seconds = 5;
static double           warm_up = 0.5;
static int              ahead;          /* -a */
static double           pause_ms;

static zhandle_t       *zh;
static slot_t          *slots;
static uint64_t         count_from, count_until;
static histogram_t      cycles, creates;
static uint64_t         ntotal;         /* cycles, also before count_from */

static pthread_mutex_t  mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t   changed = PTHREAD_COND_INITIALIZER;
static int              connected;
static int              nbusy;


int
main(int argc, char **argv)
{
    int              i;
    char             path[PATH_MAX_LEN];
    uint64_t         now;
    struct timespec  until;

    parse_options(argc, argv);

    zoo_set_debug_level(ZOO_LOG_LEVEL_ERROR);

    zh = zookeeper_init(servers, watcher, 30000, NULL, NULL, 0);
    slots = calloc((size_t) nslots, sizeof(slot_t));

    if (zh == NULL || slots == NULL) {
        die("start", ZSYSTEMERROR);
    }

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += CONNECT_SECONDS;

    pthread_mutex_lock(&mutex);
    while (!connected) {
        if (pthread_cond_timedwait(&changed, &mutex, &until) != 0) {
            die("connect", ZOPERATIONTIMEOUT);
        }
    }
    pthread_mutex_unlock(&mutex);

    make(root);

    for (i = 0; i < nslots; i++) {
        snprintf(path, sizeof(path), "%s/slot-%d", root, i);
        make(path);
        snprintf(slots[i].prefix, PATH_MAX_LEN, "%s/slot-%d/%s", root, i,
                 CHILD);
    }

    now = now_ns();
    count_from = now + (uint64_t) (warm_up * SECOND_NS);
    count_until = count_from + (uint64_t) (seconds * SECOND_NS);

    nbusy = nslots;

    for (i = 0; i < nslots; i++) {
        slot_create(&slots[i]);
    }

    wait_for_all();

    zookeeper_close(zh);

    printf("{\"clients\":%d,\"seconds\":%g,\"cycles\":%llu,"
           "\"total\":%llu,\"per_second\":%.1f,", nslots, seconds,
           (unsigned long long) cycles.n, (unsigned long long) ntotal,
           (double) cycles.n / seconds);

    histogram_print(&cycles, "cycle");
    putchar(',');
    histogram_print(&creates, "acquire");
    printf("}\n");

    return 0;
}


static void
parse_options(int argc, char **argv)
{
    int  opt;

    while ((opt = getopt(argc, argv, "s:c:t:w:r:ag:")) != -1) {
        switch (opt) {
        case 's':
            servers = optarg;
            break;
        case 'c':
            nslots = atoi(optarg);
            break;
        case 't':
            seconds = atof(optarg);
            break;
        case 'w':
            warm_up = atof(optarg);
            break;
        case 'r':
            root = optarg;
            break;
        case 'a':
            ahead = 1;
            break;
        case 'g':
            pause_ms = atof(optarg);
            break;
        default:
            usage();
        }
    }

    if (optind != argc || servers == NULL || seconds <= 0 || warm_up < 0
        || pause_ms < 0 || (pause_ms > 0 && (nslots > 1 || ahead))
        || nslots < 1 || nslots > SLOTS_MAX || strlen(root) > 100)
    {
        usage();
    }
}


static void
usage(void)
{
    fprintf(stderr, "usage: rawzk -s HOST:PORT -c IN-FLIGHT -t SECONDS "
            "[-w SECONDS] [-r ROOT] [-a] [-g MS]\n");
    exit(2);
}


static void
watcher(zhandle_t *handle, int type, int state, const char *path,
    void *context)
{
    (void) handle;
    (void) path;
    (void) context;

    if (type != ZOO_SESSION_EVENT) {
        return;
    }

    pthread_mutex_lock(&mutex);

    if (connected && state != ZOO_CONNECTED_STATE) {
        die("the session", ZCONNECTIONLOSS);
    }

    connected = (state == ZOO_CONNECTED_STATE);
    pthread_cond_signal(&changed);
    pthread_mutex_unlock(&mutex);
}


static void
make(const char *path)
{
    int  rc;

    rc = zoo_create(zh, path, "", 0, &ZOO_OPEN_ACL_UNSAFE, 0, NULL, 0);

    if (rc != ZOK && rc != ZNODEEXISTS) {
        die("zoo_create()", rc);
    }
}


static void
slot_create(slot_t *slot)
{
    int  rc;

    slot->began = now_ns();

    rc = zoo_acreate(zh, slot->prefix, DATA, sizeof(DATA) - 1,
                     &ZOO_OPEN_ACL_UNSAFE, ZOO_EPHEMERAL|ZOO_SEQUENCE,
                     slot_created, slot);

    if (rc != ZOK) {
        die("zoo_acreate()", rc);
    }
}


static void
slot_created(int rc, const char *path, const void *data)
{
    slot_t  *slot = (slot_t *) data;

    if (rc != ZOK) {
        die("a create", rc);
    }

    slot->created = now_ns();

    rc = zoo_adelete(zh, path, -1, slot_deleted, slot);

    if (rc != ZOK) {
        die("zoo_adelete()", rc);
    }

    if (ahead) {
        busy(1);
        slot_done(slot);
    }
}


static void
slot_deleted(int rc, const void *data)
{
    if (rc != ZOK) {
        die("a delete", rc);
    }

    if (ahead) {
        busy(-1);

    } else {
        slot_done((slot_t *) data);
    }
}


static void
slot_done(slot_t *slot)
{
    uint64_t  now;

    now = now_ns();
    ntotal++;

    if (now >= count_from && now < count_until) {
        histogram_add(&cycles, now - slot->began);
        histogram_add(&creates, slot->created - slot->began);
    }

    if (pause_ms > 0) {
        usleep((useconds_t) (pause_ms * 1000));
    }

    if (now < count_until) {
        slot_create(slot);

    } else {
        busy(-1);
    }
}


/* so many more slots, or deletes that a slot does not wait for */

static void
busy(int n)
{
    pthread_mutex_lock(&mutex);
    nbusy += n;
    pthread_cond_signal(&changed);
    pthread_mutex_unlock(&mutex);
}


static void
wait_for_all(void)
{
    struct timespec  until;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += (time_t) (warm_up + seconds) + DRAIN_SECONDS;

    pthread_mutex_lock(&mutex);

    while (nbusy > 0) {
        if (pthread_cond_timedwait(&changed, &mutex, &until) != 0) {
            die("what was in flight", ZOPERATIONTIMEOUT);
        }
    }

    pthread_mutex_unlock(&mutex);
}


/* also called with the mutex held, and on the library's threads */

static void
die(const char *what, int rc)
{
    fprintf(stderr, "rawzk: %s: %s\n", what, zerror(rc));
    _exit(1);
}
