/* JSON of a gateway, which may be any bytes.  http.c bounds the length; here
 * the nesting is bounded, because yajl_tree_free() calls itself for each level.
 * Strings are UTF-8, which yajl has checked. */


#include "zk-lock.h"

#define JSON_DEPTH  32

/* Also where a string has no end, which yajl takes behind a value. */
static bool json_is_refused(const char *p)
{
    bool string = false;
    int depth = 0;
    for (; *p; p++) {
        if (*p == '"')
            string = !string;
        else if (string && *p == '\\' && p[1])
            p++;
        else if (!string && (*p == '{' || *p == '[') && ++depth > JSON_DEPTH)
            return true;
        else if (!string && (*p == '}' || *p == ']'))
            depth--;
    }
    return string;
}

/* Returns NULL if the text, which has a NUL behind, is no JSON or is nested too
 * deep.  The caller frees the tree by yajl_tree_free(), which takes NULL. */
yajl_val json_parse(const char *body, size_t len)
{
    if (!body || strlen(body) != len || json_is_refused(body))
        return NULL;
    return yajl_tree_parse(body, NULL, 0);
}

/* Returns NULL if there is no such member, or the tree is no object. */
yajl_val json_get(yajl_val tree, const char *member)
{
    const char *path[] = { member, NULL };
    return YAJL_IS_OBJECT(tree) ? yajl_tree_get(tree, path, yajl_t_any) : NULL;
}

const char *json_string(yajl_val tree, const char *member)
{
    return YAJL_GET_STRING(json_get(tree, member));
}

/* Of a whole number from 0 on; anything else is missing. */
int64_t json_number(yajl_val tree, const char *member, int64_t missing)
{
    yajl_val value = json_get(tree, member);
    return YAJL_IS_INTEGER(value) && YAJL_GET_INTEGER(value) >= 0
           ? YAJL_GET_INTEGER(value) : missing;
}

/* The length of what a terminal acts on: U+0080 to U+009F, and directions. */
static int json_control(const unsigned char *p)
{
    if (p[0] == 0x7f)
        return 1;
    if (p[0] == 0xc2 && p[1] >= 0x80 && p[1] < 0xa0)
        return 2;
    if (p[0] == 0xe2 && p[1] == 0x80
        && (p[2] == 0x8e || p[2] == 0x8f || (p[2] >= 0xaa && p[2] <= 0xae)))
        return 3;
    return p[0] == 0xe2 && p[1] == 0x81 && p[2] >= 0xa6 && p[2] <= 0xa9 ? 3 : 0;
}

/* An owner or a name may be any text: what a terminal would act on is a "?",
 * and a control character is written as JSON has it, on the same line. */
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
