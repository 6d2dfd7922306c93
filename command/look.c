/*
 * ls, show and watch, and the operators' break and drain.
 *
 * An answer is printed as text, by json_print(), or with --json as the gateway
 * sent the bytes.  This file keeps no data between calls.  The function of a
 * command takes the operands and the URLs of the locks with these names, ended
 * by NULL, and returns the exit status.
 */

#include "zk-lock.h"

#define LOOK_TIMEOUT  60000
#define LOOK_LIMIT    (64 << 20)        /* bytes of an answer */
#define LOOK_LINE     (4 << 20)         /* bytes of an event */
#define LOOK_PAUSE    1000              /* ms between two connections */


/* Prints a string or a number after a text.  Prints nothing without either. */
static void look_print_member(FILE *out, const char *before, yajl_val tree,
                              const char *member)
{
    yajl_val value = json_get(tree, member);

    if (YAJL_IS_STRING(value)) {
        fputs(before, out);
        json_print(out, YAJL_GET_STRING(value));
    } else if (YAJL_IS_NUMBER(value)) {
        fprintf(out, "%s%s", before, YAJL_GET_NUMBER(value));
    }
}

/* The owner is the end of a line, because an owner may be any text. */
static void look_print_claims(FILE *out, const char *word, yajl_val list)
{
    size_t i;

    for (i = 0; YAJL_IS_ARRAY(list) && i < list->u.array.len; i++) {
        yajl_val claim = list->u.array.values[i];
        int64_t left = json_number(claim, "expires_in_ms", -1);

        fprintf(out, "    %s", word);
        look_print_member(out, " since ", claim, "since");
        look_print_member(out, ", token ", claim, "fencing_token");
        if (left >= 0)
            fprintf(out, ", %" PRId64 " s left", left / 1000);
        if (YAJL_IS_TRUE(json_get(claim, "revoke")))
            fputs(", asked to let go", out);
        look_print_member(out, ", ", claim, "mode");
        look_print_member(out, ", from ", claim, "from");
        look_print_member(out, ", by ", claim, "owner");
        putc('\n', out);
    }
}

static void look_print_lock(FILE *out, yajl_val lock)
{
    look_print_member(out, "", lock, "held");
    look_print_member(out, " held, ", lock, "queued");
    fputs(" waiting", out);
    look_print_member(out, ", ", lock, "mode");
    look_print_member(out, " of ", lock, "permits");
    look_print_member(out, ": ", lock, "name");
    putc('\n', out);
    look_print_claims(out, "held", json_get(lock, "holders"));
    look_print_claims(out, "waiting", json_get(lock, "queue"));
}

/* Prints a line for each owner; for a watched lock a line for all owners, also
 * for none. */
static void look_print_owners(FILE *out, bool watched, yajl_val list)
{
    const char *before = "";
    size_t i;

    for (i = 0; i < list->u.array.len; i++) {
        const char *owner = json_string(list->u.array.values[i], "owner");

        if (owner) {
            fputs(before, out);
            json_print(out, owner);
            before = watched ? " " : "\n";
        }
    }
    if (watched || *before)
        putc('\n', out);
}

/* Prints an answer, which is "locks", "lock" or "health".  Returns false, and
 * prints nothing, if the body is something else.  The caller frees the tree,
 * which may be NULL. */
bool look_print(FILE *out, const options_t *options, const char *what,
                const char *body, size_t len, yajl_val *tree)
{
    yajl_val locks, holders;
    size_t i;

    *tree = json_parse(body, len);
    locks = json_get(*tree, "locks");
    holders = json_get(*tree, "holders");

    if (*tree && options->json) {
        fprintf(out, "%s%s", body, body[len - 1] == '\n' ? "" : "\n");
    } else if (!strcmp(what, "health") && json_string(*tree, "status")) {
        fputs(YAJL_IS_TRUE(json_get(*tree, "drained")) ? "drained"
                                                       : "not drained", out);
        look_print_member(out, ", ", *tree, "status");
        look_print_member(out, ": ", *tree, "detail");
        putc('\n', out);
    } else if (!strcmp(what, "locks") && YAJL_IS_ARRAY(locks)) {
        for (i = 0; i < locks->u.array.len; i++)
            look_print_lock(out, locks->u.array.values[i]);
    } else if (!strcmp(what, "lock") && YAJL_IS_ARRAY(holders)) {
        if (options->owners)
            look_print_owners(out, options->command == WATCH, holders);
        else
            look_print_lock(out, *tree);
    } else {
        return false;
    }
    return true;
}

static int look_flush(void)
{
    if (fflush(stdout) || ferror(stdout)) {
        util_log("standard output: %s", strerror(errno));
        return EXIT_SYSTEM;
    }
    return 0;
}

/* Makes the call, prints the answer, and ends the call.  For "health" the
 * answer may be a 503.  With a name, of a lock, the answer may be a 404 with an
 * ETag: the lock is free, but a 404 for a path that is no lock has no ETag.
 * Sets next, unless NULL, to the name after which the next page of a list
 * begins, for free(), or to NULL.  Returns the exit status. */
static int look_at(const options_t *options, http_call_t *call,
                   const char *what, const char *name, char **next)
{
    yajl_val tree = NULL;
    const char *after;
    bool is_free;
    int status = 0;

    call->limit = LOOK_LIMIT;
    http_call(call, NULL);
    is_free = name && call->status == 404 && http_header(call, "ETag");

    if (is_free && !options->json) {
        if (!options->owners) {
            fputs("0 held, 0 waiting: ", stdout);
            json_print(stdout, name);
            putchar('\n');
        }
    } else if (!(is_free || call->status == 200
                 || (call->status == 503 && !strcmp(what, "health")))
               || !look_print(stdout, options, what, call->body, call->len,
                              &tree)) {
        util_log("no %s: %s", what, http_describe(call));
        status = http_exit_status(call->status);
    }

    if (next) {
        after = json_string(tree, "next");
        *next = after && *after && !status ? util_text("%s", after) : NULL;
        if (YAJL_IS_FALSE(json_get(tree, "complete")))
            util_log("the list may lack locks, see the API's \"complete\"");
    }
    yajl_tree_free(tree);
    http_end(call);
    return status ? status : look_flush();
}

int look_ls(const options_t *options, char **names, char **locks)
{
    char *url = util_text("%s/", options->url), *after = NULL;
    int status;

    (void) names;
    (void) locks;
    do {
        http_call_t call = http_new("GET", url, LOOK_TIMEOUT);

        http_add(&call, HTTP_QUERY, "limit=1000");
        if (options->sort) {
            http_add(&call, HTTP_QUERY, "holders=1");
            http_add(&call, HTTP_QUERY, "sort=%s", options->sort);
        }
        if (options->prefix)
            http_add(&call, HTTP_QUERY, "prefix=%s", options->prefix);
        if (options->owner)
            http_add(&call, HTTP_QUERY, "owner=%s", options->owner);
        if (after)
            http_add(&call, HTTP_QUERY, "after=%s", after);
        free(after);
        status = look_at(options, &call, "locks", NULL, &after);
    } while (after);
    free(url);
    return status;
}

int look_show(const options_t *options, char **names, char **locks)
{
    http_call_t call = http_new("GET", locks[0], LOOK_TIMEOUT);

    return look_at(options, &call, "lock", names[0], NULL);
}

/* Takes an event of a watched lock; a line that is no event ends the call. */
static bool look_on_event(http_call_t *call, char *line, size_t len)
{
    yajl_val tree = json_parse(line, len), again = NULL;
    const char *event = json_string(tree, "event");
    bool known = len == 0;

    if (event && !strcmp(event, "alive"))
        known = true;
    else if (event && !strcmp(event, "change"))
        known = look_print(stdout, call->data, "lock", line, len, &again);
    yajl_tree_free(tree);
    yajl_tree_free(again);
    if (look_flush())
        exit(EXIT_SYSTEM);
    if (known)
        util_log_again();
    else
        util_log_once("%s", line);
    return known;
}

static void look_on_signal(int signo)
{
    _exit(128 + signo);
}

/* Makes a connection for each lock, and another when a connection ends, with a
 * pause between.  Does not return except without memory: a signal ends the
 * program. */
int look_watch(const options_t *options, char **names, char **locks)
{
    static const int signals[] = { SIGHUP, SIGINT, SIGQUIT, SIGTERM };
    http_call_t *watches, *w;
    int64_t until;
    size_t i, n = 0;
    bool ended = true;

    (void) names;
    for (i = 0; i < sizeof(signals) / sizeof(signals[0]); i++) {
        if (signal(signals[i], look_on_signal) == SIG_IGN)
            signal(signals[i], SIG_IGN);
    }
    while (locks[n])
        n++;
    watches = calloc(n, sizeof(*watches));
    if (!watches)
        return EXIT_SYSTEM;

    for (;;) {
        for (w = watches; ended && w < watches + n; w++) {
            if (w->easy && !w->done)
                continue;
            http_end(w);
            *w = http_new("GET", locks[w - watches], NEVER);
            w->limit = LOOK_LINE;
            w->line = look_on_event;
            w->data = options;
            http_add(w, HTTP_HEAD, "Accept: application/x-ndjson");
            http_start(w);
        }
        until = util_now() + LOOK_PAUSE;
        while (ended && util_now() < until)
            http_wait(NULL, 0, until);

        ended = false;
        for (w = watches; w < watches + n; w++) {
            if (w->done) {
                util_log_once("%s: the connection ended: %s",
                              locks[w - watches], http_describe(w));
                ended = true;
            }
        }
        if (!ended)
            http_wait(NULL, 0, NEVER);
    }
}

/* Takes the lock from the holder with that fencing token, or with --all from
 * all holders. */
int look_break(const options_t *options, char **names, char **locks)
{
    http_call_t call = http_new("DELETE", locks[0], LOOK_TIMEOUT);
    int status = 0;

    http_add(&call, HTTP_QUERY, "force=1");
    http_add(&call, HTTP_HEAD, options->all ? "If-Match: *"
             : "If-Match: \"%s\"", names[1]);
    http_call(&call, NULL);
    if (call.status != 204) {
        util_log("nothing is broken: %s", http_describe(&call));
        status = http_exit_status(call.status);
        if (call.status == 404 || call.status == 412)
            status = EXIT_NOT_THERE;
    }
    http_end(&call);
    return status;
}

/* Without --health the health is at the host of the locks. */
int look_drain(const options_t *options, char **names, char **locks)
{
    bool change = strcmp(names[0], "status");
    const char *url = options->health ? options->health : options->url;
    http_call_t call = http_new(change ? "PUT" : "GET", url, LOOK_TIMEOUT);

    (void) locks;
    if (!options->health)
        curl_url_set(call.url, CURLUPART_PATH, "/health", 0);
    if (change)
        http_add(&call, HTTP_QUERY, "drain=%s", names[0]);
    return look_at(options, &call, "health", NULL, NULL);
}
