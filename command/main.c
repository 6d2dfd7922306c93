/* The arguments of zk-lock(1), and what is said on standard error.
 *
 * The arguments are copied, because a password in a URL, and the keeper's title
 * are written where ps(1) reads them. */

#include "zk-lock.h"

#define MAIN_LINE  1024         /* bytes of a message */
#define ANY        (~0)

/* how many operands a command takes, a -- not counted */
static const struct { const char *name, *operands; int least, most; }
main_commands[] = {
    { "run", "NAME [--] COMMAND [ARGUMENT]...", 2, INT_MAX },
    { "lead", "NAME [--] COMMAND [ARGUMENT]...", 2, INT_MAX },
    { "join", "NAME ADDRESS [[--] CHECK [ARGUMENT]...]", 2, INT_MAX },
    { "ls", "", 0, 0 },
    { "show", "NAME", 1, 1 },
    { "watch", "NAME...", 1, INT_MAX },
    { "break", "NAME TOKEN|--all", 1, 2 },
    { "drain", "on|off|status", 1, 1 },
    { NULL, NULL, 0, 0 }
};

typedef struct {
    const char *name;
    char letter;
    enum { FLAG = 0, HELP, TEXT, TIME, NUMBER, URL } kind;
    int commands;
    size_t field;
} main_option_t;

static const main_option_t main_options[] = {
#define AT(field)  offsetof(options_t, field)
    { "--wait", 'w', TIME, RUN, AT(wait) },
    { "--ttl", 't', TIME, RUN | LEAD | JOIN, AT(ttl) },
    { "--grace", 'g', TIME, RUN | LEAD | JOIN, AT(grace) },
    { "--min-hold", 'm', TIME, RUN, AT(min_hold) },
    { "--max-hold", 0, TIME, RUN, AT(max_hold) },
    { "--owner", 'o', TEXT, RUN | LEAD | LS, AT(owner) },
    { "--shared", 0, FLAG, RUN, AT(shared) },
    { "--permits", 0, NUMBER, RUN, AT(permits) },
    { "--taken-status", 'E', NUMBER, RUN, AT(taken_status) },
    { "--foreground", 0, FLAG, RUN | LEAD, AT(foreground) },
    { "--quiet", 'q', FLAG, RUN, AT(quiet) },
    { "--prefix", 0, TEXT, LS, AT(prefix) },
    { "--sort", 0, TEXT, LS, AT(sort) },
    { "--owners", 0, FLAG, SHOW | WATCH, AT(owners) },
    { "--all", 0, FLAG, BREAK, AT(all) },
    { "--health", 0, URL, DRAIN, AT(health) },
    { "--json", 0, FLAG, LS | SHOW | WATCH | DRAIN, AT(json) },
    { "--url", 'u', URL, ANY, AT(url) },
    { "--config", 'K', TEXT, ANY, AT(config) },
    { "--help", 'h', HELP, ANY, 0 },
    { NULL, 0, FLAG, 0, 0 }
};

static options_t given = { .ttl = 10000, .grace = 2000,
                                .taken_status = EXIT_TAKEN };
static char *synopsis;          /* of the command, or NULL */

int64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_BOOTTIME, &t);
    return (int64_t) t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Writes a line, without what a terminal would act on; if once, then not the
 * line that was the last so.  An empty text is not written.  A reader that does
 * not read keeps no process from ending a command. */
void main_say(bool once, const char *format, ...)
{
    static char said[MAIN_LINE];
    struct pollfd fd = { .fd = STDERR_FILENO, .events = POLLOUT };
    char message[MAIN_LINE], line[2 * MAIN_LINE] = "";
    FILE *f = fmemopen(line, sizeof(line), "w");
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof(message), format, args);
    va_end(args);
    if (f) {
        fputs("zk-lock: ", f);
        json_print(f, message);
        putc('\n', f);
        fclose(f);
    }
    if (message[0] && !(once && !strcmp(message, said))
        && poll(&fd, 1, 0) == 1 && (fd.revents & POLLOUT))
        (void) !write(STDERR_FILENO, line, strlen(line));
    if (once)
        strcpy(said, message);
}

static void __attribute__((noreturn)) main_usage(void)
{
    fprintf(stderr, "usage: zk-lock %s\n", synopsis ? synopsis
            : "COMMAND [OPTION]... [ARGUMENT]...; \"zk-lock --help\" tells the"
              " commands");
    exit(EXIT_USAGE);
}

#define usage(...)  do { say(__VA_ARGS__); main_usage(); } while (0)

/* To be freed.  Ends the program without memory, which a keeper must not. */
char *text(const char *format, ...)
{
    va_list args;
    char *string;
    va_start(args, format);
    if (vasprintf(&string, format, args) == -1)
        err(EXIT_SYSTEM, NULL);
    va_end(args);
    return string;
}

static void __attribute__((noreturn)) main_help(void)
{
    int i, k;
    for (i = 0; main_commands[i].name; i++) {
        printf("zk-lock %s [OPTION]... %s\n       ", main_commands[i].name,
               main_commands[i].operands);
        for (k = 0; main_options[k].name; k++)
            if (main_options[k].commands != ANY
                && main_options[k].commands & (1 << i))
                printf(" %s", main_options[k].name);
        putchar('\n');
    }
    puts("All take --url URL, --config FILE and --help; see zk-lock(1).");
    exit(fflush(stdout) ? EXIT_SYSTEM : 0);
}

/* Sets an option.  The argument is the value where ps(1) reads it, or NULL. */
static void main_set(const main_option_t *option, const char *name,
                     const char *value, char *argument)
{
    static const struct { const char *name; int64_t ms; } units[] = {
        { "", 1000 }, { "ms", 1 }, { "s", 1000 }, { "m", 60000 },
        { "h", 3600000 }, { "d", 86400000 }, { NULL, 0 } };
    void *field = (char *) &given + option->field;
    size_t len = value ? strspn(value, "0123456789") : 0;
    bool number = len > 0 && len <= 8 && !(value[0] == '0' && len > 1);
    int i;
    switch (option->kind) {
    case FLAG:
        *(bool *) field = true;
        break;
    case HELP:
        main_help();
    case TEXT:
        *(const char **) field = value;
        break;
    case TIME:
        for (i = 0; units[i].name && strcmp(value + len, units[i].name); i++)
            ;
        if (!number || !units[i].name)
            usage("%s takes a whole number of seconds, or one with ms, s, m,"
                  " h or d behind, and not \"%s\"", name, value);
        *(int64_t *) field = atoll(value) * units[i].ms;
        break;
    case NUMBER:
        if (!number || value[len] || (option->letter ? atoi(value) > 255
                                                     : atoi(value) < 1))
            usage("%s takes a number, and not \"%s\"", name, value);
        *(int64_t *) field = atoll(value);
        break;
    case URL:
        *(char **) field = config_url(value, argument);
        if (!*(char **) field)
            usage("%s takes a URL of http or https", name);
        break;
    }
}

/* Takes the options that come first, and returns how many arguments they are.
 * The original is where ps(1) reads the arguments. */
static int main_parse(char **argv, char **original)
{
    int i;
    for (i = 0; argv[i] && argv[i][0] == '-' && argv[i][1]; i++) {
        bool letter = argv[i][1] != '-';
        size_t len = letter ? 2 : strcspn(argv[i], "=");
        char *value = argv[i] + len + (!letter && argv[i][len]);
        bool glued = argv[i][len];
        const main_option_t *o = main_options;
        char *name = text("%.*s", (int) len, argv[i]);
        if (!strcmp(argv[i], "--"))
            return i + 1;
        while (o->name && !(o->commands & (int) given.command
                            && (letter ? o->letter == name[1]
                                       : !strcmp(o->name, name))))
            o++;
        if (!o->name)
            usage("%s is no option of \"zk-lock %s\"", name, synopsis);
        if (glued && o->kind <= HELP)
            usage("%s takes no value", name);
        if (!glued && o->kind > HELP && !(value = argv[++i]))
            usage("%s needs a value", name);
        main_set(o, name, value, original[i] + (value - argv[i]));
        free(name);
    }
    return i;
}

/* The URL of a lock: a percent sign for each byte that means something.  A
 * slash is %252F, which no proxy decodes to a slash. */
static char *main_lock(const char *name)
{
    char *full = calloc(3, strlen(name) + 1), *end = full, *escaped, *lock;
    if (!*name || !strcmp(name, ".") || !strcmp(name, "..") || !full)
        usage("NAME cannot be \"%s\"", name);
    for (; *name; name++)
        end += sprintf(end, *name == '/' ? "%%2F" : "%c", *name);
    escaped = curl_easy_escape(NULL, full, 0);
    lock = text("%s/%s", given.url, escaped ? escaped : "");
    curl_free(escaped);
    free(full);
    return lock;
}

/* USER@HOST, or the number of a user without a name. */
static char *main_owner(void)
{
    struct passwd *user = getpwuid(geteuid());
    struct utsname host;
    uname(&host);
    return user ? text("%s@%s", user->pw_name, host.nodename)
                : text("%u@%s", (unsigned) geteuid(), host.nodename);
}

/* Ends the program if the operands are not those of the command. */
static void main_check(char **argv, int n)
{
    const options_t *o = &given;
    int i = __builtin_ctz(o->command);
    const char *last = n ? argv[n - 1] : "";
    if (n < main_commands[i].least)
        usage("an operand is missing: %s", main_commands[i].operands);
    if (n > main_commands[i].most)
        usage("\"%s\" is too much", last);
    if (o->command == BREAK && (o->all ? n != 1 : n != 2))
        usage("which holders: either TOKEN or --all");
    if (o->command == BREAK && n == 2
        && (!*last || last[strspn(last, "0123456789")]))
        usage("TOKEN is the number of a holder that \"show\" tells, and not"
              " \"%s\"", last);
    if (o->command == DRAIN && strcmp(last, "on") && strcmp(last, "off")
        && strcmp(last, "status"))
        usage("\"%s\" is neither on nor off nor status", last);
    if (o->sort && strcmp(o->sort, "since") && strcmp(o->sort, "waiting"))
        usage("--sort takes \"since\" or \"waiting\", and not \"%s\"", o->sort);
    if (o->ttl < 8000)
        usage("--ttl: a lease takes 8 seconds or more");
    if (o->ttl * 2 / 3 < o->grace + 3000)
        usage("--grace takes a longer lease than --ttl says: two thirds of it"
              " have to be three seconds more");
}

static int main_run(char **argv, char *title, size_t title_size)
{
    options_t *o = &given;
    char *lock = main_lock(*argv++);
    int status;
    if (o->command == JOIN)
        o->owner = *argv++;
    if (*argv && !strcmp(*argv, "--"))
        argv++;
    if (!*argv && o->command != JOIN)
        usage("COMMAND is missing");
    if (o->command == LEAD)
        o->wait = 86400000;
    if (!o->owner)
        o->owner = main_owner();
    status = run(o, lock, argv, title, title_size);
    free(lock);
    return status;
}

static int main_look(char **argv, int n)
{
    const options_t *o = &given;
    char **locks = calloc((size_t) n + 1, sizeof(char *));
    int status, i;
    for (i = 0; locks && o->command & (SHOW | WATCH | BREAK) && i < n; i++)
        locks[i] = main_lock(argv[i]);
    status = locks ? http_open(o) : EXIT_SYSTEM;
    if (status == 0)
        status = o->command == LS ? look_ls(o)
                 : o->command == SHOW ? look_show(o, locks[0], argv[0])
                 : o->command == WATCH ? look_watch(o, locks)
                 : o->command == BREAK ? look_break(locks[0], argv[1])
                 : look_drain(o, argv[0]);
    http_close();
    for (i = 0; locks && i < n; i++)
        free(locks[i]);
    free(locks);
    return status;
}

/* Sets a URL by a variable, unless it is set, or the variable is empty. */
static void main_set_by(const char *variable, size_t field)
{
    const main_option_t option = { .kind = URL, .field = field };
    const char *value = getenv(variable);
    if (!*(char **) ((char *) &given + field) && value && *value)
        main_set(&option, variable, value, NULL);
}

int main(int argc, char **argv)
{
    char **original = argv, *first;
    int i;
    if (argc < 2)
        usage("a command is missing");
    if (!strcmp(argv[1], "-h") || !strcmp(argv[1], "--help")
        || !strcmp(argv[1], "help"))
        main_help();
    for (i = 0; main_commands[i].name && !synopsis; i++)
        if (!strcmp(argv[1], main_commands[i].name)) {
            given.command = 1 << i;
            synopsis = text("%s [OPTION]... %s", argv[1],
                                 main_commands[i].operands);
        }
    if (!synopsis)
        usage("\"%s\" is no command", argv[1]);

    argv = given.argv = calloc((size_t) argc + 1, sizeof(char *));
    for (i = 0; argv && i < argc; i++)
        argv[i] = text("%s", original[i]);
    if (!argv)
        return EXIT_SYSTEM;

    i = 2 + main_parse(argv + 2, original + 2);
    if (argv[i] && given.command & (SHOW | WATCH | BREAK | DRAIN)) {
        /* options may come behind the first operand, too */
        first = argv[i];
        i += main_parse(argv + i + 1, original + i + 1);
        argv[i] = first;
    }
    main_set_by("ZK_LOCK_URL", AT(url));
    main_set_by("LOCKS", AT(url));
    if (given.command == DRAIN)
        main_set_by("ZK_LOCK_HEALTH", AT(health));
    if (!given.url)
        given.url = text("http://127.0.0.1:8080/locks");

    main_check(argv + i, argc - i);
    if (given.command >= LS)
        return main_look(argv + i, argc - i);
    first = original[argc - 1] + strlen(original[argc - 1]);
    return main_run(argv + i, *original, (size_t) (first - *original));
}
