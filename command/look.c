/* What there is, and what operators do: ls, show, watch, break, drain.  Answers
 * are printed as text, by json_print(), or with --json as they came. */

#include "zk-lock.h"

#define LOOK_TIMEOUT  60000
#define LOOK_LIMIT    (64 << 20)        /* bytes of an answer */
#define LOOK_LINE     (4 << 20)         /* bytes of an event */
#define LOOK_PAUSE    1000              /* ms between two connections */

/* A string or a number behind a text, or nothing. */
static void look_member(FILE *out, const char *before, yajl_val tree,
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

/* The owner is the end of a line, because it may be any text. */
static void look_claims(FILE *out, const char *word, yajl_val list)
{
    size_t i;
    for (i = 0; YAJL_IS_ARRAY(list) && i < list->u.array.len; i++) {
        yajl_val claim = list->u.array.values[i];
        int64_t left = json_number(claim, "expires_in_ms", -1);
        fprintf(out, "    %s", word);
        look_member(out, " since ", claim, "since");
        look_member(out, ", token ", claim, "fencing_token");
        if (left >= 0)
            fprintf(out, ", %" PRId64 " s left", left / 1000);
        if (YAJL_IS_TRUE(json_get(claim, "revoke")))
            fputs(", asked to let go", out);
        look_member(out, ", ", claim, "mode");
        look_member(out, ", from ", claim, "from");
        look_member(out, ", by ", claim, "owner");
        putc('\n', out);
    }
}

static void look_lock(FILE *out, yajl_val lock)
{
    look_member(out, "", lock, "held");
    look_member(out, " held, ", lock, "queued");
    fputs(" waiting", out);
    look_member(out, ", ", lock, "mode");
    look_member(out, " of ", lock, "permits");
    look_member(out, ": ", lock, "name");
    putc('\n', out);
    look_claims(out, "held", json_get(lock, "holders"));
    look_claims(out, "waiting", json_get(lock, "queue"));
}

/* An owner a line; of a watched lock all owners, also none, are a line. */
static void look_owners(FILE *out, bool watched, yajl_val list)
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

/* Prints an answer, "locks", "lock" or "health".  Returns false, and prints
 * nothing, if it is none.  The caller frees the tree, which may be NULL. */
bool look_print(FILE *out, const options_t *options, const char *what,
                const char *body, size_t len, yajl_val *tree)
{
    yajl_val value;
    size_t i;
    *tree = json_parse(body, len);
    value = json_get(*tree, !strcmp(what, "locks") ? "locks"
                            : !strcmp(what, "lock") ? "holders" : "status");

    if (*tree && options->json) {
        fprintf(out, "%s%s", body, body[len - 1] == '\n' ? "" : "\n");
    } else if (!strcmp(what, "health") && YAJL_IS_STRING(value)) {
        fputs(YAJL_IS_TRUE(json_get(*tree, "drained")) ? "drained"
                                                       : "not drained", out);
        look_member(out, ", ", *tree, "status");
        look_member(out, ": ", *tree, "detail");
        putc('\n', out);
    } else if (!YAJL_IS_ARRAY(value)) {
        return false;
    } else if (!strcmp(what, "locks")) {
        for (i = 0; i < value->u.array.len; i++)
            look_lock(out, value->u.array.values[i]);
    } else if (options->owners) {
        look_owners(out, options->command == WATCH, value);
    } else {
        look_lock(out, *tree);
    }
    return true;
}

static int look_flushed(void)
{
    if (!fflush(stdout) && !ferror(stdout))
        return 0;
    say("standard output: %s", strerror(errno));
    return EXIT_SYSTEM;
}

/* Makes the call, and prints the answer, which for "health" may be a 503, and
 * for the lock of that name a 404: a lock that is free has an ETag, and a path
 * that is no lock has none.  The last, if not NULL, is what comes behind a page
 * of a list, to be freed. */
static int look_at(const options_t *options, http_call_t *call,
                   const char *what, const char *name, char **last)
{
    yajl_val tree = NULL;
    bool free_lock;
    int status = 0;
    call->limit = LOOK_LIMIT;
    http_call(call, NULL);
    free_lock = name && call->status == 404 && http_header(call, "ETag");

    if (free_lock && !options->json) {
        fputs(options->owners ? "" : "0 held, 0 waiting: ", stdout);
        json_print(stdout, options->owners ? "" : name);
        fputs(options->owners ? "" : "\n", stdout);
    } else if ((call->status != 200 && !free_lock
                && (call->status != 503 || strcmp(what, "health")))
               || !look_print(stdout, options, what, call->body, call->len,
                              &tree)) {
        say("no %s: %s", what, http_told(call));
        status = http_exit_status(call->status);
    }
    if (last) {
        const char *next = json_string(tree, "next");
        *last = next && *next && !status ? text("%s", next) : NULL;
        if (YAJL_IS_FALSE(json_get(tree, "complete")))
            say("the list may lack locks, see the API's \"complete\"");
    }
    yajl_tree_free(tree);
    http_end(call);
    return status ? status : look_flushed();
}

int look_ls(const options_t *options)
{
    char *url = text("%s/", options->url), *after = NULL;
    int status;
    do {
        http_call_t call = http_new("GET", url, LOOK_TIMEOUT);
        http_query(&call, "limit=1000");
        if (options->sort) {
            http_query(&call, "holders=1");
            http_query(&call, "sort=%s", options->sort);
        }
        if (options->prefix)
            http_query(&call, "prefix=%s", options->prefix);
        if (options->owner)
            http_query(&call, "owner=%s", options->owner);
        if (after)
            http_query(&call, "after=%s", after);
        free(after);
        status = look_at(options, &call, "locks", NULL, &after);
    } while (after);
    free(url);
    return status;
}

int look_show(const options_t *options, const char *lock, const char *name)
{
    http_call_t call = http_new("GET", lock, LOOK_TIMEOUT);
    return look_at(options, &call, "lock", name, NULL);
}

/* Takes an event of a watched lock. */
static bool look_event(http_call_t *call, char *line, size_t len)
{
    yajl_val tree = json_parse(line, len), again = NULL;
    const char *event = json_string(tree, "event");
    bool known = len == 0 || (event && !strcmp(event, "alive"));
    if (event && !strcmp(event, "change"))
        known = look_print(stdout, call->data, "lock", line, len, &again);
    yajl_tree_free(tree);
    yajl_tree_free(again);
    if (look_flushed())
        exit(EXIT_SYSTEM);
    if (known)
        say_anew();
    else
        say_once("%s", line);
    return known;
}

static void look_on_signal(int signo)
{
    _exit(128 + signo);
}

/* Makes a connection to each lock, and another when it ends. */
int look_watch(const options_t *options, char **locks)
{
    static const int signals[] = { SIGHUP, SIGINT, SIGQUIT, SIGTERM };
    http_call_t *watches, *w;
    int64_t until;
    size_t i, n = 0;
    for (i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
        if (signal(signals[i], look_on_signal) == SIG_IGN)
            signal(signals[i], SIG_IGN);
    while (locks[n])
        n++;
    watches = calloc(n, sizeof(*watches));

    while (watches) {
        for (w = watches; w < watches + n; w++) {
            if (w->url && !w->done)
                continue;
            http_end(w);
            *w = http_new("GET", locks[w - watches], NEVER);
            w->limit = LOOK_LINE;
            w->line = look_event;
            w->data = options;
            http_head(w, "Accept: application/x-ndjson");
            http_start(w);
        }
        for (until = now() + LOOK_PAUSE; now() < until;)
            http_wait(NULL, 0, until);
        for (w = watches; w < watches + n && !w->done; w++)
            ;
        if (w == watches + n)
            http_wait(NULL, 0, NEVER);
        for (w = watches; w < watches + n; w++)
            if (w->done)
                say_once("%s: the connection ended: %s", locks[w - watches],
                         http_told(w));
    }
    return EXIT_SYSTEM;
}

/* The holder with that fencing token, or with NULL all, have lost the lock. */
int look_break(const char *lock, const char *token)
{
    http_call_t call = http_new("DELETE", lock, LOOK_TIMEOUT);
    int status = 0;
    http_query(&call, "force=1");
    http_head(&call, token ? "If-Match: \"%s\"" : "If-Match: *", token);
    http_call(&call, NULL);
    if (call.status != 204) {
        say("nothing is broken: %s", http_told(&call));
        status = call.status == 404 || call.status == 412
                 ? EXIT_NOT_THERE : http_exit_status(call.status);
    }
    http_end(&call);
    return status;
}

int look_drain(const options_t *options, const char *what)
{
    bool change = strcmp(what, "status");
    http_call_t call = http_new(change ? "PUT" : "GET", options->health
                                ? options->health : options->url, LOOK_TIMEOUT);
    if (!options->health)       /* at the host of the locks */
        curl_url_set(call.url, CURLUPART_PATH, "/health", 0);
    if (change)
        http_query(&call, "drain=%s", what);
    return look_at(options, &call, "health", NULL, NULL);
}
