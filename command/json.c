/*
 * JSON of a gateway, which may be any bytes.
 *
 * http.c bounds the length of an answer.  This file bounds the nesting, because
 * yajl_tree_free() recurses for each level.  Strings are UTF-8, because yajl
 * checks the encoding.  A tree belongs to the caller of json_parse(); a string
 * lives as long as the tree.  Each function takes a tree of NULL.
 */

#include "zk-lock.h"

#define JSON_DEPTH  32


/* Refuses deep nesting, and a string without an end, which yajl accepts after a
 * complete value. */
static bool json_is_refused(const char *p)
{
    bool string = false;
    int depth = 0;

    for (; *p; p++) {
        if (*p == '"') {
            string = !string;
        } else if (string) {
            if (*p == '\\' && p[1])
                p++;
        } else if (*p == '{' || *p == '[') {
            depth++;
            if (depth > JSON_DEPTH)
                return true;
        } else if (*p == '}' || *p == ']') {
            depth--;
        }
    }
    return string;
}

/* Returns a tree for yajl_tree_free(), which takes NULL, too.  Returns NULL if
 * the body, which ends with a NUL, is not JSON or is nested too deep. */
yajl_val json_parse(const char *body, size_t len)
{
    if (!body || strlen(body) != len || json_is_refused(body))
        return NULL;
    return yajl_tree_parse(body, NULL, 0);
}

/* Returns NULL if the member is missing, or the tree is not an object. */
yajl_val json_get(yajl_val tree, const char *member)
{
    const char *path[] = { member, NULL };

    return YAJL_IS_OBJECT(tree) ? yajl_tree_get(tree, path, yajl_t_any) : NULL;
}

/* Returns NULL if the member is missing, or is not a string. */
const char *json_string(yajl_val tree, const char *member)
{
    return YAJL_GET_STRING(json_get(tree, member));
}

/* A member that is not a whole number from 0 on counts as missing. */
int64_t json_number(yajl_val tree, const char *member, int64_t missing)
{
    yajl_val value = json_get(tree, member);

    return YAJL_IS_INTEGER(value) && YAJL_GET_INTEGER(value) >= 0
           ? YAJL_GET_INTEGER(value) : missing;
}

/* The bytes of a character that a terminal acts on, beside those below U+0020:
 * DEL, U+0080 to U+009F, and marks of direction.  0: a plain character. */
static int json_control(const unsigned char *p)
{
    if (p[0] == 0x7f)
        return 1;
    if (p[0] == 0xc2 && p[1] >= 0x80 && p[1] < 0xa0)
        return 2;
    if (p[0] == 0xe2 && p[1] == 0x80
        && (p[2] == 0x8e || p[2] == 0x8f || (p[2] >= 0xaa && p[2] <= 0xae)))
        return 3;
    if (p[0] == 0xe2 && p[1] == 0x81 && p[2] >= 0xa6 && p[2] <= 0xa9)
        return 3;
    return 0;
}

/* Prints an owner or a name, which may be any text: control characters as JSON
 * escapes them, so the text stays on a line, and "?" for what else a terminal
 * acts on. */
void json_print(FILE *out, const char *string)
{
    static const char controls[] = "\b\f\n\r\t", letters[] = "bfnrt";
    const unsigned char *p = (const unsigned char *) string;

    for (; *p; p++) {
        const char *known = *p < 0x20 ? strchr(controls, *p) : NULL;
        int control = json_control(p);

        if (known) {
            fprintf(out, "\\%c", letters[known - controls]);
        } else if (*p < 0x20) {
            fprintf(out, "\\u%04x", *p);
        } else if (control) {
            putc('?', out);
            p += control - 1;
        } else {
            putc(*p, out);
        }
    }
}
