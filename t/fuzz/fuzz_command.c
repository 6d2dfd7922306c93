
/*
 * The input of zk-lock(1): the answers of a gateway, and the file of --config.
 *
 * - Text for people has no control character except the ends of lines, and no
 *   other character that a terminal acts on; an answer that is refused prints
 *   no byte.
 * - With --json the bytes of the answer are printed, with an end of a line.
 * - An owner is a line; of a watched lock the whole list is a line.
 * - A number of an answer is at least 0, or the number for a missing member.
 * - A line of the file is taken or refused.
 */


#include <string.h>
#include <unistd.h>

#include "fuzz.h"
#include "../../command/zk-lock.h"


static void check_print(char *text, size_t len, unsigned kind);
static void check_text(const char *said, size_t size, const options_t *o);
static void check_config(char *text, size_t len);


/* a byte chooses the check; the text follows */

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char          *text;
    unsigned       kind;
    yajl_val       tree;
    fuzz_input_t   in;
    static int     quiet;

    /* messages of the command are not the fuzzer's */
    if (!quiet) {
        quiet = 1;
        curl_global_init(CURL_GLOBAL_DEFAULT);
    }

    in.data = data;
    in.left = size;
    kind = fuzz_below(&in, 16);

    text = fuzz_block(NULL, in.left + 1);
    memcpy(text, in.data, in.left);
    text[in.left] = '\0';

    tree = json_parse(text, in.left);
    rule(json_number(tree, "ttl_ms", -1) >= -1, "a number");
    rule(tree == NULL || strlen(text) == in.left, "a NUL");
    yajl_tree_free(tree);

    if (kind == 15) {
        check_config(text, in.left);

    } else {
        check_print(text, in.left, kind);
    }

    fuzz_block_free(text);

    return 0;
}


static void
check_print(char *text, size_t len, unsigned kind)
{
    FILE               *out;
    bool                taken;
    char               *said;
    size_t              size;
    yajl_val            tree;
    options_t           o;
    static const char  *whats[] = { "locks", "lock", "health", "lock" };

    memset(&o, 0, sizeof(o));
    o.command = (kind & 4) ? WATCH : SHOW;
    o.owners = (kind & 3) == 3;
    o.json = (kind & 8) != 0;

    out = open_memstream(&said, &size);
    taken = look_print(out, &o, whats[kind & 3], text, len, &tree);
    yajl_tree_free(tree);
    fclose(out);

    if (!taken) {
        rule(size == 0, "printed, and refused");

    } else if (o.json) {
        rule(size == len + (text[len - 1] != '\n')
             && memcmp(said, text, len) == 0 && said[size - 1] == '\n',
             "not as it came");

    } else {
        check_text(said, size, &o);
    }

    free(said);
}


static void
check_text(const char *said, size_t size, const options_t *o)
{
    size_t                i;
    const unsigned char  *p;

    p = (const unsigned char *) said;

    for (i = 0; i < size; i++) {
        rule(p[i] >= 0x20 || p[i] == '\n', "control %d", p[i]);
        rule(p[i] != 0x7f, "a DEL");
        rule(p[i] != 0xc2 || p[i + 1] >= 0xa0, "U+00%x", p[i + 1]);
        rule(p[i] != 0xe2 || p[i + 1] != 0x80
             || (p[i + 2] != 0x8e && p[i + 2] != 0x8f
                 && (p[i + 2] < 0xaa || p[i + 2] > 0xae)), "a direction");
        rule(p[i] != 0xe2 || p[i + 1] != 0x81
             || p[i + 2] < 0xa6 || p[i + 2] > 0xa9, "an isolate");
    }

    rule(size == 0 || said[size - 1] == '\n', "no end of a line");

    if (o->owners && o->command == WATCH) {
        rule(strchr(said, '\n') == said + size - 1, "more than a line");
    }
}


/* A line that is taken once is taken again. */

static void
check_config(char *text, size_t len)
{
    bool                first, again;
    char                path[] = "/proc/self/fd/1000";
    CURL               *easy;
    FILE               *f;
    struct curl_slist  *head;

    f = tmpfile();
    easy = curl_easy_init();
    rule(f && easy, "no file");

    fwrite(text, 1, len, f);
    fflush(f);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fileno(f));

    head = NULL;
    first = config_apply(easy, path, &head);
    again = config_apply(easy, path, &head);
    rule(first == again, "taken once");

    curl_slist_free_all(head);
    curl_easy_cleanup(easy);
    fclose(f);
}
