/*
 * How a gateway is reached: the URL, and the file of -K with options for curl
 * as ~/.curlrc has them.
 *
 * The file is read for each call, so a new password or certificate counts
 * without a restart.  No message shows a password, and no argument that ps(1)
 * reads.  This file owns the user and the password of the URL.
 */

#include "zk-lock.h"

#define CONFIG_LINE  8192

/* an option of libcurl below CURLOPTTYPE_OBJECTPOINT is a flag with a value */
typedef struct {
    const char *name;
    char letter;
    int option;                 /* 0: ignored */
    long value;
} config_option_t;

static const config_option_t config_options[] = {
    { "user", 'u', CURLOPT_USERPWD, 0 },
    { "header", 'H', CURLOPT_HTTPHEADER, 0 },
    { "user-agent", 'A', CURLOPT_USERAGENT, 0 },
    { "oauth2-bearer", 0, CURLOPT_XOAUTH2_BEARER, 0 },
    { "digest", 0, CURLOPT_HTTPAUTH, CURLAUTH_DIGEST },
    { "negotiate", 0, CURLOPT_HTTPAUTH, CURLAUTH_NEGOTIATE },
    { "netrc", 'n', CURLOPT_NETRC, CURL_NETRC_REQUIRED },
    { "netrc-file", 0, CURLOPT_NETRC_FILE, 0 },
    { "cert", 'E', CURLOPT_SSLCERT, 0 },
    { "key", 0, CURLOPT_SSLKEY, 0 },
    { "pass", 0, CURLOPT_KEYPASSWD, 0 },
    { "cacert", 0, CURLOPT_CAINFO, 0 },
    { "capath", 0, CURLOPT_CAPATH, 0 },
    { "pinnedpubkey", 0, CURLOPT_PINNEDPUBLICKEY, 0 },
    { "insecure", 'k', CURLOPT_SSL_VERIFYPEER, 0 },
    { "proxy", 'x', CURLOPT_PROXY, 0 },
    { "noproxy", 0, CURLOPT_NOPROXY, 0 },
    { "proxy-user", 'U', CURLOPT_PROXYUSERPWD, 0 },
    { "unix-socket", 0, CURLOPT_UNIX_SOCKET_PATH, 0 },
    { "silent", 's', 0, 0 },
    { "show-error", 'S', 0, 0 },
    { NULL, 0, 0, 0 }
};

static char *config_user;       /* of the URL, decoded; NULL: none */
static char *config_password;


/* Overwrites the password of a URL.  A password may contain an "@". */
static void config_hide(char *url)
{
    char *p = strstr(url, "://"), *end;

    p = p ? p + 3 : url;
    end = memrchr(p, '@', strcspn(p, "/?#"));
    if (!end)
        return;
    p = memchr(p, ':', (size_t) (end - p));
    if (p)
        memset(p + 1, '*', (size_t) (end - p - 1));
}

/* Returns the URL without user, password and a "/" at the end, for curl_free(),
 * or NULL if the text is no URL of http or https.  The user counts for all
 * calls.  The argument, if not NULL, is where ps(1) reads the URL. */
char *config_url(const char *url, char *argument)
{
    CURLU *u = curl_url();
    char *scheme = NULL, *clean = NULL;

    if (argument)
        config_hide(argument);
    if (!curl_url_set(u, CURLUPART_URL, url, CURLU_GUESS_SCHEME))
        curl_url_get(u, CURLUPART_SCHEME, &scheme, 0);
    if (scheme && (!strcmp(scheme, "http") || !strcmp(scheme, "https"))) {
        curl_url_get(u, CURLUPART_USER, &config_user, CURLU_URLDECODE);
        curl_url_get(u, CURLUPART_PASSWORD, &config_password, CURLU_URLDECODE);
        curl_url_set(u, CURLUPART_USER, NULL, 0);
        curl_url_set(u, CURLUPART_PASSWORD, NULL, 0);
        curl_url_get(u, CURLUPART_URL, &clean, 0);
    }
    if (clean && clean[strlen(clean) - 1] == '/')
        clean[strlen(clean) - 1] = '\0';
    curl_free(scheme);
    curl_url_cleanup(u);
    return clean;
}

/* Ends the value in place: at a blank, or at the second double quote.  Within
 * quotes a backslash escapes the next character. */
static void config_end_value(char *value)
{
    static const char escapes[] = "tnrv", meant[] = "\t\n\r\v";
    char *from = value + 1;

    if (*value != '"') {
        value[strcspn(value, " \t")] = '\0';
        return;
    }
    for (; *from && *from != '"'; from++) {
        const char *escape = NULL;

        if (*from == '\\' && from[1]) {
            from++;
            escape = strchr(escapes, *from);
        }
        *value++ = escape ? meant[escape - escapes] : *from;
    }
    *value = '\0';
}

/* Sets the option in libcurl, with the options that belong to it. */
static CURLcode config_set(CURL *easy, const config_option_t *o,
                           const char *value, struct curl_slist **head)
{
    struct curl_slist *longer;

    if (o->option == CURLOPT_HTTPHEADER) {
        longer = curl_slist_append(*head, value);
        if (!longer)
            return CURLE_OUT_OF_MEMORY;
        *head = longer;
        return CURLE_OK;
    }
    if (o->option == CURLOPT_XOAUTH2_BEARER)
        curl_easy_setopt(easy, CURLOPT_HTTPAUTH, CURLAUTH_BEARER);
    if (o->option == CURLOPT_SSL_VERIFYPEER)
        curl_easy_setopt(easy, CURLOPT_SSL_VERIFYHOST, 0L);
    if (o->option >= CURLOPTTYPE_OBJECTPOINT)
        return curl_easy_setopt(easy, o->option, value);
    return o->option ? curl_easy_setopt(easy, o->option, o->value) : CURLE_OK;
}

/* Sets the option of a line, which is not empty, and is changed. */
static bool config_set_line(CURL *easy, char *line, struct curl_slist **head)
{
    const config_option_t *o = config_options;
    char *name = line + strspn(line, "-");
    bool letter = name == line + 1 && *name;    /* as in -uuser:password */
    size_t len = letter ? 1 : strcspn(name, "=: \t");
    char *value = name + len;
    CURLcode rc;

    value += strspn(value, "=: \t");
    config_end_value(value);
    while (o->name && (letter ? *name != o->letter
                       : strncmp(name, o->name, len) || o->name[len]))
        o++;
    if (!o->name) {
        util_log_once("the file of --config: \"%.*s\" is no option that"
                      " zk-lock(1) knows", (int) len, name);
        return false;
    }
    rc = config_set(easy, o, value, head);
    if (rc != CURLE_OK)
        util_log_once("the file of --config, %s: %s", o->name,
                      curl_easy_strerror(rc));
    return rc == CURLE_OK;
}

/* Applies the user of the URL, and the file unless NULL.  Returns false, after
 * a message, if the file cannot be read or has a line that is not valid.  The
 * caller frees the head. */
bool config_apply(CURL *easy, const char *file, struct curl_slist **head)
{
    char line[CONFIG_LINE];
    bool ok = true;
    FILE *f;

    if (config_user
        && (curl_easy_setopt(easy, CURLOPT_USERNAME, config_user)
            || curl_easy_setopt(easy, CURLOPT_PASSWORD, config_password)))
        return false;
    if (!file)
        return true;
    f = fopen(file, "re");
    if (!f) {
        util_log_once("cannot read %s: %s", file, strerror(errno));
        return false;
    }
    while (ok && fgets(line, sizeof(line), f)) {
        char *p = line + strspn(line, " \t");

        line[strcspn(line, "\r\n")] = '\0';
        if (*p && *p != '#')
            ok = config_set_line(easy, p, head);
    }
    fclose(f);
    return ok;
}
