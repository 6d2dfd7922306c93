
/*
 * An answer of HTTP/1.1, as far as a client needs it: where it ends, its
 * status, its headers, and its body in one piece.
 */


#define _GNU_SOURCE

#include <stdlib.h>
#include <string.h>

#include "load.h"


static char *chunks_end(char *p, const char *last);
static void chunks_join(char *p);


/*
 * The length of the whole answer, 0 if it is not all there, or BROKEN.  The
 * text has a zero behind it.  An answer that is complete is changed: head and
 * body become strings, and a chunked body loses its chunks.
 */

size_t
http_answer(char *text, size_t len, answer_t *answer)
{
    char        *head_end, *body, *end;
    const char  *value;

    head_end = strstr(text, "\r\n\r\n");

    if (head_end == NULL) {
        return 0;
    }

    if (strncmp(text, "HTTP/1.", 7) != 0) {
        return BROKEN;
    }

    answer->status = atoi(text + 9);
    answer->head = text;
    answer->body = body = end = head_end + 4;

    /* a search for headers ends where the head does */
    head_end[2] = '\0';

    if (answer->status != 204 && answer->status != 304) {

        value = http_header(text, "Content-Length");

        if (value != NULL) {
            end = (size_t) atol(value) <= len - (size_t) (body - text)
                  ? body + atol(value) : NULL;

        } else if (http_header(text, "Transfer-Encoding") != NULL) {
            end = chunks_end(body, text + len);

            if (end != NULL) {
                chunks_join(body);
            }

        } else {
            return BROKEN;
        }
    }

    if (end == NULL) {
        head_end[2] = '\r';
        return 0;
    }

    return (size_t) (end - text);
}


/* where the last chunk ends, behind its empty line; NULL: not there yet */

static char *
chunks_end(char *p, const char *last)
{
    char           *line;
    unsigned long   size;

    for ( ;; ) {
        line = strstr(p, "\r\n");

        if (line == NULL) {
            return NULL;
        }

        size = strtoul(p, NULL, 16);
        p = line + 2;

        if (size == 0) {
            break;
        }

        if (last - p < 2 || size > (size_t) (last - p - 2)) {
            return NULL;
        }

        p += size + 2;
    }

    /* trailers, if any */

    while ((line = strstr(p, "\r\n")) != NULL && line != p) {
        p = line + 2;
    }

    return line ? line + 2 : NULL;
}


static void
chunks_join(char *p)
{
    char           *to, *data;
    unsigned long   size;

    for (to = p; (size = strtoul(p, NULL, 16)) != 0; p = data + size + 2) {
        data = strstr(p, "\r\n") + 2;
        memmove(to, data, size);
        to += size;
    }

    *to = '\0';
}


/* the value of a header */

const char *
http_header(const char *head, const char *name)
{
    size_t       len;
    const char  *line;

    len = strlen(name);

    for (line = strstr(head, "\r\n"); line; line = strstr(line, "\r\n")) {
        line += 2;

        if (strncasecmp(line, name, len) == 0 && line[len] == ':') {
            line += len + 1;
            return line + strspn(line, " ");
        }
    }

    return NULL;
}
