/*
 * The arguments of zk-lock(1).
 *
 * main() copies the arguments, because config.c overwrites a password, and
 * run.c the whole, where ps(1) reads them.  This file owns the options, which
 * all other files only read.  An error in the arguments ends the program with a
 * message and the synopsis of the command.
 */

#include "zk-lock.h"

#define ANY  (~0)               /* all commands take this option */

/* a row for each command; a command without look() is a command of run.c */
typedef struct {
    const char *name, *operands;
    command_e command;
    int least, most;            /* operands, a "--" not counted */
    int (*look)(const options_t *options, char **names, char **locks);
} main_command_t;

static const main_command_t main_commands[] = {
    { "run", "NAME [--] COMMAND [ARGUMENT]...", RUN, 2, INT_MAX, 0 },
    { "lead", "NAME [--] COMMAND [ARGUMENT]...", LEAD, 2, INT_MAX, 0 },
    { "join", "NAME ADDRESS [[--] CHECK [ARGUMENT]...]", JOIN, 2, INT_MAX, 0 },
    { "ls", "", LS, 0, 0, look_ls },
    { "show", "NAME", SHOW, 1, 1, look_show },
    { "watch", "NAME...", WATCH, 1, INT_MAX, look_watch },
    { "break", "NAME TOKEN|--all", BREAK, 1, 2, look_break },
    { "drain", "on|off|status", DRAIN, 1, 1, look_drain },
    { NULL, NULL, 0, 0, 0, 0 }
};

typedef struct {
    const char *name;
    char letter;                /* 0: none */
    enum { FLAG = 0, HELP, TEXT, TIME, NUMBER, STATUS, URL } kind;
    int commands;
    size_t field;               /* of options_t */
} main_option_t;

#define AT(field)  offsetof(options_t, field)

static const main_option_t main_options[] = {
    { "--wait", 'w', TIME, RUN, AT(wait) },
    { "--ttl", 't', TIME, RUN | LEAD | JOIN, AT(ttl) },
    { "--grace", 'g', TIME, RUN | LEAD | JOIN, AT(grace) },
    { "--min-hold", 'm', TIME, RUN, AT(min_hold) },
    { "--max-hold", 0, TIME, RUN, AT(max_hold) },
    { "--owner", 'o', TEXT, RUN | LEAD | LS, AT(owner) },
    { "--shared", 0, FLAG, RUN, AT(shared) },
    { "--permits", 0, NUMBER, RUN, AT(permits) },
    { "--taken-status", 'E', STATUS, RUN, AT(taken_status) },
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

typedef struct {
    const char *name;
    int64_t factor;
} main_unit_t;

static const main_unit_t main_plain[] = { { "", 1 }, { NULL, 0 } };
static const main_unit_t main_times[] = {
    { "", 1000 }, { "ms", 1 }, { "s", 1000 }, { "m", 60000 },
    { "h", 3600000 }, { "d", 86400000 }, { NULL, 0 } };

static const main_command_t main_unknown = { "COMMAND",
    "[ARGUMENT]...; \"zk-lock --help\" tells the commands", 0, 0, 0, NULL };
static const main_command_t *main_command = &main_unknown;
static char **main_argv;        /* the copy of the arguments */
static options_t given = { .ttl = 10000, .grace = 2000,
                           .taken_status = EXIT_TAKEN };


static void __attribute__((noreturn)) FORMAT(1)
main_usage(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    util_vlog(format, args);
    va_end(args);
    fprintf(stderr, "usage: zk-lock %s [OPTION]... %s\n", main_command->name,
            main_command->operands);
    exit(EXIT_USAGE);
}

static void __attribute__((noreturn)) main_help(void)
{
    const main_command_t *c;
    const main_option_t *o;

    for (c = main_commands; c->name; c++) {
        printf("zk-lock %s [OPTION]... %s\n       ", c->name, c->operands);
        for (o = main_options; o->name; o++) {
            if (o->commands != ANY && (o->commands & (int) c->command))
                printf(" %s", o->name);
        }
        putchar('\n');
    }
    puts("All take --url URL, --config FILE and --help; see zk-lock(1).");
    exit(fflush(stdout) ? EXIT_SYSTEM : 0);
}

/* Returns a number in units, or -1.  A number has at most eight digits, and no
 * zeros in front. */
static int64_t main_number(const char *value, const main_unit_t *units)
{
    size_t len = strspn(value, "0123456789");

    if (len == 0 || len > 8 || (value[0] == '0' && len > 1))
        return -1;
    for (; units->name; units++) {
        if (!strcmp(value + len, units->name))
            return atoll(value) * units->factor;
    }
    return -1;
}

/* Sets an option; a flag takes no value.  The argument, if not NULL, is where
 * ps(1) reads the value. */
static void main_set(const main_option_t *option, const char *name,
                     const char *value, char *argument)
{
    void *field = (char *) &given + option->field;
    int64_t number;
    char *url;

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
        number = main_number(value, main_times);
        if (number == -1)
            main_usage("%s takes a whole number of seconds, or one with ms, s,"
                       " m, h or d behind, and not \"%s\"", name, value);
        *(int64_t *) field = number;
        break;

    case NUMBER:
    case STATUS:
        number = main_number(value, main_plain);
        if (option->kind == STATUS ? number < 0 || number > 255 : number < 1)
            main_usage("%s takes a number, and not \"%s\"", name, value);
        *(int64_t *) field = number;
        break;

    case URL:
        url = config_url(value, argument);
        if (!url)
            main_usage("%s takes a URL of http or https", name);
        *(char **) field = url;
        break;
    }
}

/* Takes the options at the front, as "-w5", "-w 5", "--wait=5" or "--wait 5",
 * up to an operand or "--".  Returns how many arguments these are.  The
 * original has the same arguments where ps(1) reads them. */
static int main_parse(char **argv, char **original)
{
    int i;

    for (i = 0; argv[i] && argv[i][0] == '-' && argv[i][1]; i++) {
        bool letter = argv[i][1] != '-';
        size_t len = letter ? 2 : strcspn(argv[i], "=");
        char *value = argv[i] + len;
        bool has_value = *value;
        const main_option_t *o = main_options;
        char *name;

        if (!strcmp(argv[i], "--"))
            return i + 1;
        name = util_text("%.*s", (int) len, argv[i]);
        while (o->name && !(o->commands & (int) given.command
                            && (letter ? o->letter == name[1]
                                       : !strcmp(o->name, name))))
            o++;
        if (!o->name)
            main_usage("%s is no option of \"zk-lock %s [OPTION]... %s\"", name,
                       main_command->name, main_command->operands);
        if (has_value && o->kind <= HELP)
            main_usage("%s takes no value", name);
        if (has_value && !letter)
            value++;                    /* the "=" */
        if (!has_value && o->kind > HELP) {
            i++;
            value = argv[i];
            if (!value)
                main_usage("%s needs a value", name);
        }
        main_set(o, name, value, original[i] + (value - argv[i]));
        free(name);
    }
    return i;
}

/* Returns the URL of a lock, for free().  Each byte with a meaning in a URL has
 * a percent sign.  A slash is %252F, which no proxy decodes to a slash. */
static char *main_lock_url(const char *name)
{
    char *full = calloc(3, strlen(name) + 1);
    char *end = full, *escaped, *lock;

    if (!*name || !strcmp(name, ".") || !strcmp(name, "..") || !full)
        main_usage("NAME cannot be \"%s\"", name);
    for (; *name; name++)
        end += sprintf(end, *name == '/' ? "%%2F" : "%c", *name);
    escaped = curl_easy_escape(NULL, full, 0);
    lock = util_text("%s/%s", given.url, escaped ? escaped : "");
    curl_free(escaped);
    free(full);
    return lock;
}

/* Returns USER@HOST; a user without a name is a number. */
static char *main_owner(void)
{
    struct passwd *user = getpwuid(geteuid());
    struct utsname host;

    uname(&host);
    return user ? util_text("%s@%s", user->pw_name, host.nodename)
                : util_text("%u@%s", (unsigned) geteuid(), host.nodename);
}

static void main_check(char **argv, int n)
{
    const options_t *o = &given;
    const char *last = n ? argv[n - 1] : "";

    if (n < main_command->least)
        main_usage("an operand is missing: %s", main_command->operands);
    if (n > main_command->most)
        main_usage("\"%s\" is too much", last);
    if (o->command == BREAK && n != (o->all ? 1 : 2))
        main_usage("which holders: either TOKEN or --all");
    if (o->command == BREAK && n == 2
        && (!*last || last[strspn(last, "0123456789")]))
        main_usage("TOKEN is the number of a holder that \"show\" tells,"
                   " and not \"%s\"", last);
    if (o->command == DRAIN && strcmp(last, "on") && strcmp(last, "off")
        && strcmp(last, "status"))
        main_usage("\"%s\" is neither on nor off nor status", last);
    if (o->sort && strcmp(o->sort, "since") && strcmp(o->sort, "waiting"))
        main_usage("--sort takes \"since\" or \"waiting\", and not \"%s\"",
                   o->sort);
    if (o->ttl < 8000)
        main_usage("--ttl: a lease takes 8 seconds or more");
    if (o->ttl * 2 / 3 < o->grace + 3000)
        main_usage("--grace takes a longer lease than --ttl says: two thirds of"
                   " it have to be three seconds more");
}

/* run, lead and join.  The title is where ps(1) reads the arguments. */
static int main_run(char **argv, char *title, size_t title_size)
{
    options_t *o = &given;
    char *lock = main_lock_url(*argv++);
    int status;

    if (o->command == JOIN)
        o->owner = *argv++;
    if (*argv && !strcmp(*argv, "--"))
        argv++;
    if (!*argv && o->command != JOIN)
        main_usage("COMMAND is missing");
    if (o->command == LEAD)
        o->wait = 86400000;
    if (!o->owner)
        o->owner = main_owner();
    status = run_command(o, lock, argv, title, title_size);
    free(lock);
    return status;
}

static int main_look(char **names, int n)
{
    char **locks = calloc((size_t) n + 1, sizeof(char *));
    int status, i;

    if (!locks)
        return EXIT_SYSTEM;
    for (i = 0; i < n && given.command & (SHOW | WATCH | BREAK); i++)
        locks[i] = main_lock_url(names[i]);
    status = http_open(&given);
    if (status == 0)
        status = main_command->look(&given, names, locks);
    http_close();
    for (i = 0; i < n; i++)
        free(locks[i]);
    free(locks);
    return status;
}

/* Sets a URL by a variable, unless set before, or the variable is empty. */
static void main_set_by(const char *variable, size_t field)
{
    const main_option_t option = { .kind = URL, .field = field };
    const char *value = getenv(variable);

    if (!*(char **) ((char *) &given + field) && value && *value)
        main_set(&option, variable, value, NULL);
}

int main(int argc, char **argv)
{
    const main_command_t *c = main_commands;
    char *operand, *end;
    int i, first;

    if (argc < 2)
        main_usage("a command is missing");
    if (!strcmp(argv[1], "-h") || !strcmp(argv[1], "--help")
        || !strcmp(argv[1], "help"))
        main_help();
    while (c->name && strcmp(c->name, argv[1]))
        c++;
    if (!c->name)
        main_usage("\"%s\" is no command", argv[1]);
    main_command = c;
    given.command = c->command;

    main_argv = calloc((size_t) argc + 1, sizeof(char *));
    if (!main_argv)
        return EXIT_SYSTEM;
    for (i = 0; i < argc; i++)
        main_argv[i] = util_text("%s", argv[i]);

    i = 2 + main_parse(main_argv + 2, argv + 2);
    if (main_argv[i] && given.command & (SHOW | WATCH | BREAK | DRAIN)) {
        /* options may follow the first operand, too */
        first = i;
        operand = main_argv[i];
        i += main_parse(main_argv + i + 1, argv + i + 1);
        main_argv[first] = main_argv[i];
        main_argv[i] = operand;
    }
    main_set_by("ZK_LOCK_URL", AT(url));
    main_set_by("LOCKS", AT(url));
    if (given.command == DRAIN)
        main_set_by("ZK_LOCK_HEALTH", AT(health));
    if (!given.url)
        given.url = util_text("http://127.0.0.1:8080/locks");

    main_check(main_argv + i, argc - i);
    if (main_command->look)
        return main_look(main_argv + i, argc - i);
    end = argv[argc - 1] + strlen(argv[argc - 1]);
    return main_run(main_argv + i, *argv, (size_t) (end - *argv));
}
