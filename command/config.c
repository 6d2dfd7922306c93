/* How a gateway is reached: the URL, and the file of -K with options for curl
 * as ~/.curlrc has them.  The file is read for each call, so a password or a
 * certificate that has changed counts without a restart.  A password is in no
 * message, and in no argument that ps(1) shows. */

#include "zk-lock.h"

#define CONFIG_LINE  8192

/* an option of libcurl below CURLOPTTYPE_OBJECTPOINT is a flag with a value */
static const struct { const char *name; char letter; int option; long value; }
config_options[] = {
    { "user", 'u', CURLOPT_USERPWD, 0 },
    { "header", 'H', CURLOPT_HTTPHEADER, 0 },
    { "user-agent", 'A', CURLOPT_USERAGENT, 0 },
    { "oauth2-bearer", 0, CURLOPT_XOAUTH2_BEARER, 0 },
    { "digest", 0, CURLOPT_HTTPAUTH, CURLAUTH_DIGEST },
    { "negotiate", 0, CURLOPT_HTTPAUTH, CURLAUTH_NEGOTIATE },
    { "netrc", 'n', CURLOPT_NETRC, CURL_NETRC_REQUIRED },
    { "netrc-file", 0, CURLOPT_NETRC_FILE, 0 },
    { "cert", 'E', CURLOPT_SSLCERT, 0 }, { "key", 0, CURLOPT_SSLKEY, 0 },
    { "pass", 0, CURLOPT_KEYPASSWD, 0 }, { "cacert", 0, CURLOPT_CAINFO, 0 },
    { "capath", 0, CURLOPT_CAPATH, 0 },
    { "pinnedpubkey", 0, CURLOPT_PINNEDPUBLICKEY, 0 },
    { "insecure", 'k', CURLOPT_SSL_VERIFYPEER, 0 },
    { "proxy", 'x', CURLOPT_PROXY, 0 }, { "noproxy", 0, CURLOPT_NOPROXY, 0 },
    { "proxy-user", 'U', CURLOPT_PROXYUSERPWD, 0 },
    { "unix-socket", 0, CURLOPT_UNIX_SOCKET_PATH, 0 },
    { "silent", 's', 0, 0 }, { "show-error", 'S', 0, 0 }, /* as always */
    { NULL, 0, 0, 0 }
};

static char *config_user, *config_password;     /* of the URL, decoded */

/* Overwrites the password of a URL.  A password may have an "@" in it. */
static void config_hide(char *url)
{
    char *p = strstr(url, "://"), *end;
    p = p ? p + 3 : url;
    for (end = p + strcspn(p, "/?#"); end > p && *end != '@'; end--)
        ;
    p = memchr(p, ':', (size_t) (end - p));
    if (p)
        memset(p + 1, '*', (size_t) (end - p - 1));
}

/* Returns the URL without user, password and a "/" at the end, for curl_free(),
 * or NULL if it is no URL of http or https.  The user counts for all calls.
 * The argument, if not NULL, is where ps(1) reads the URL. */
char *config_url(const char *url, char *argument)
{
    CURLU *u = curl_url();
    char *scheme = NULL, *clean = NULL;
    if (argument)
        config_hide(argument);
    if (!curl_url_set(u, CURLUPART_URL, url, CURLU_GUESS_SCHEME)
        && !curl_url_get(u, CURLUPART_SCHEME, &scheme, 0)
        && (!strcmp(scheme, "http") || !strcmp(scheme, "https"))) {
        curl_url_get(u, CURLUPART_USER, &config_user, CURLU_URLDECODE);
        curl_url_get(u, CURLUPART_PASSWORD, &config_password, CURLU_URLDECODE);
        curl_url_set(u, CURLUPART_USER, NULL, 0);
        curl_url_set(u, CURLUPART_PASSWORD, NULL, 0);
        if (curl_url_get(u, CURLUPART_URL, &clean, 0))
            clean = NULL;
    }
    if (clean && clean[strlen(clean) - 1] == '/')
        clean[strlen(clean) - 1] = '\0';
    curl_free(scheme);
    curl_url_cleanup(u);
    return clean;
}

/* Ends the value where it ends: up to a blank, or between double quotes, with a
 * backslash before what is not to end the quotes. */
static void config_value(char *value)
{
    static const char escapes[] = "tnrv", meant[] = "\t\n\r\v";
    char *from = value + 1;
    if (*value != '"') {
        value[strcspn(value, " \t")] = '\0';
        return;
    }
    for (; *from && *from != '"'; from++) {
        const char *escape = NULL;
        if (*from == '\\' && from[1])
            escape = strchr(escapes, *++from);
        *value++ = escape ? meant[escape - escapes] : *from;
    }
    *value = '\0';
}

/* Sets the option of a line, which is not empty, and is written to. */
static bool config_line(CURL *easy, char *line, struct curl_slist **head)
{
    char *name = line + strspn(line, "-"), *value;
    bool letter = name == line + 1;         /* as in -uuser:password */
    size_t len = letter ? 1 : strcspn(name, "=: \t");
    CURLcode rc = CURLE_OK;
    int i, option;
    value = name + len + strspn(name + len, "=: \t");
    config_value(value);

    for (i = 0; config_options[i].name; i++)
        if (letter ? *name && *name == config_options[i].letter
                   : !strncmp(name, config_options[i].name, len)
                     && !config_options[i].name[len])
            break;
    if (!config_options[i].name) {
        say_once("the file of --config: \"%.*s\" is no option that zk-lock(1)"
                 " knows", (int) len, name);
        return false;
    }

    option = config_options[i].option;
    if (option == CURLOPT_HTTPHEADER) {
        struct curl_slist *longer = curl_slist_append(*head, value);
        *head = longer ? longer : *head;
    } else if (option >= CURLOPTTYPE_OBJECTPOINT) {
        rc = curl_easy_setopt(easy, option, value);
    } else if (option) {
        rc = curl_easy_setopt(easy, option, config_options[i].value);
    }
    if (option == CURLOPT_XOAUTH2_BEARER)
        curl_easy_setopt(easy, CURLOPT_HTTPAUTH, CURLAUTH_BEARER);
    if (option == CURLOPT_SSL_VERIFYPEER)
        curl_easy_setopt(easy, CURLOPT_SSL_VERIFYHOST, 0L);

    if (rc != CURLE_OK)
        say_once("the file of --config, %s: %s", config_options[i].name,
                 curl_easy_strerror(rc));
    return rc == CURLE_OK;
}

/* Sets what the URL and the file, if not NULL, say.  Returns false, and says
 * why, if the file cannot be read, or has a line that cannot be used. */
bool config_apply(CURL *easy, const char *file, struct curl_slist **head)
{
    FILE *f = file ? fopen(file, "re") : NULL;
    char line[CONFIG_LINE];
    bool ok = f || !file;
    if (!ok)
        say_once("cannot read %s: %s", file, strerror(errno));
    if (config_user)
        ok = ok && !curl_easy_setopt(easy, CURLOPT_USERNAME, config_user)
             && !curl_easy_setopt(easy, CURLOPT_PASSWORD, config_password);

    while (ok && f && fgets(line, sizeof(line), f)) {
        char *p = line + strspn(line, " \t");
        line[strcspn(line, "\r\n")] = '\0';
        if (*p && *p != '#')
            ok = config_line(easy, p, head);
    }
    if (f)
        fclose(f);
    return ok;
}
