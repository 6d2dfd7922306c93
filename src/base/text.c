
/*
 * Texts: base64url, hexadecimal digits, UTF-8, durations.  The file has no
 * state, so any thread may call the functions.  A pointer may be NULL only
 * with a length of 0.
 */


#include <string.h>

#include "base/text.h"


typedef struct {
    const char      *text;
    int64_t          ms;
} zkl_unit_t;


const char  zkl_base64_digits[] =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

const char  zkl_hex_digits[] = "0123456789abcdef";

static const zkl_unit_t  zkl_units[] = {
    { "",   1000 },
    { "ms", 1 },
    { "s",  1000 },
    { "m",  60 * 1000 },
    { "h",  60 * 60 * 1000 },
    { "d",  24 * 60 * 60 * 1000 },
    { NULL, 0 }
};


size_t
zkl_text_base64_write(char *buf, const void *data, size_t len)
{
    char           *p;
    size_t          i;
    uint32_t        bits, left;
    const uint8_t  *bytes = data;

    p = buf;
    bits = 0;
    left = 0;

    for (i = 0; i < len; i++) {
        bits = (bits << 8) | bytes[i];
        left += 8;

        while (left >= 6) {
            left -= 6;
            *p++ = zkl_base64_digits[(bits >> left) & 0x3f];
        }
    }

    if (left != 0) {
        *p++ = zkl_base64_digits[(bits << (6 - left)) & 0x3f];
    }

    return (size_t) (p - buf);
}


int
zkl_text_base64_read(void *data, size_t *n, const char *text, size_t len)
{
    size_t       i;
    uint8_t     *p;
    uint32_t     bits, left;
    const char  *digit;

    p = data;
    bits = 0;
    left = 0;

    for (i = 0; i < len; i++) {
        digit = memchr(zkl_base64_digits, text[i], 64);
        if (digit == NULL) {
            return -1;
        }

        bits = (bits << 6) | (uint32_t) (digit - zkl_base64_digits);
        left += 6;

        if (left >= 8) {
            left -= 8;
            *p++ = (uint8_t) (bits >> left);
        }
    }

    /* a digit that ends no byte, or left-over bits that a writer leaves 0 */

    if (left == 6 || (bits & ((1U << left) - 1)) != 0) {
        return -1;
    }

    *n = (size_t) (p - (uint8_t *) data);

    return 0;
}


int64_t
zkl_text_number_read(const char *text, size_t len, int64_t max)
{
    size_t   i;
    int64_t  value;

    value = 0;

    for (i = 0; i < len; i++) {

        if (text[i] < '0' || text[i] > '9') {
            return -1;
        }

        value = value * 10 + (text[i] - '0');

        if (value > max) {
            return -1;
        }
    }

    return value;
}


int64_t
zkl_text_duration_read(const char *text, size_t len)
{
    size_t             i, start;
    int64_t            scale, thousandths, value;
    const zkl_unit_t  *unit;

    for (i = 0; i < len && text[i] >= '0' && text[i] <= '9'; i++) {
        /* void */
    }

    value = zkl_text_number_read(text, i, ZKL_DURATION_MAX);

    if (i == 0 || value == -1) {
        return -1;
    }

    start = i;
    thousandths = 0;

    if (i < len && text[i] == '.') {
        scale = 100;

        for (i++; i < len && text[i] >= '0' && text[i] <= '9'; i++) {
            thousandths += (text[i] - '0') * scale;
            scale /= 10;
        }

        if (i < start + 2 || i > start + 4) {
            return -1;
        }
    }

    for (unit = zkl_units; unit->text != NULL; unit++) {

        if (len - i == strlen(unit->text)
            && memcmp(text + i, unit->text, len - i) == 0)
        {
            break;
        }
    }

    if (unit->text == NULL
        || (unit->ms == 1 && i != start)
        || value > ZKL_DURATION_MAX / unit->ms)
    {
        return -1;
    }

    value = value * unit->ms + thousandths * unit->ms / 1000;

    return (value <= ZKL_DURATION_MAX) ? value : -1;
}


int
zkl_text_letters_check(const char *text, size_t len, const char *letters)
{
    size_t  i, n;

    n = strlen(letters);

    for (i = 0; i < len; i++) {
        if (memchr(letters, text[i], n) == NULL) {
            return 0;
        }
    }

    return 1;
}


size_t
zkl_text_shown_len(const char *text, size_t len)
{
    size_t    at, next;
    uint32_t  code;

    for (at = 0; at < len; at = next) {

        if (text[at] >= 0x20 && text[at] < 0x7f) {
            next = at + 1;
            continue;
        }

        next = at;
        code = zkl_text_utf8_next(text, len, &next);

        if (code == ZKL_BROKEN || code < 0x20 || (code >= 0x7f && code < 0xa0))
        {
            break;
        }
    }

    return at;
}


int
zkl_text_shown_check(const char *text, size_t len)
{
    return zkl_text_shown_len(text, len) == len;
}


size_t
zkl_text_show(char *buf, size_t size, const char *text, size_t len)
{
    size_t  n, at, room;

    for (at = 0; at < len; at++) {
        n = zkl_text_shown_len(text + at, len - at);
        room = size - at;

        if (n > room) {

            /* a character is not cut */

            while (((unsigned char) text[at + room] & 0xc0) == 0x80) {
                room--;
            }

            n = room;
        }

        memcpy(buf + at, text + at, n);
        at += n;

        if (at == len || n == room) {
            break;
        }

        buf[at] = '?';
    }

    return at;
}


int
zkl_text_utf8_check(const char *text, size_t len)
{
    size_t  at;

    at = 0;

    while (at < len) {
        if (zkl_text_utf8_next(text, len, &at) == ZKL_BROKEN) {
            return 0;
        }
    }

    return 1;
}


uint32_t
zkl_text_utf8_next(const char *text, size_t len, size_t *at)
{
    size_t          n;
    uint32_t        code, least;
    unsigned char   c;

    c = (unsigned char) text[(*at)++];

    if (c < 0x80) {
        return c;
    }

    if (c >= 0xc2 && c <= 0xdf) {
        n = 1;
        code = c & 0x1f;
        least = 0x80;

    } else if (c >= 0xe0 && c <= 0xef) {
        n = 2;
        code = c & 0x0f;
        least = 0x800;

    } else if (c >= 0xf0 && c <= 0xf4) {
        n = 3;
        code = c & 0x07;
        least = 0x10000;

    } else {
        return ZKL_BROKEN;
    }

    while (n-- != 0) {

        if (*at == len) {
            return ZKL_BROKEN;
        }

        c = (unsigned char) text[*at];

        if ((c & 0xc0) != 0x80) {
            return ZKL_BROKEN;
        }

        code = (code << 6) | (c & 0x3f);
        (*at)++;
    }

    if (code < least || (code >= 0xd800 && code <= 0xdfff) || code > 0x10ffff)
    {
        return ZKL_BROKEN;
    }

    return code;
}


int
zkl_text_hex_digit(char c)
{
    if (c >= '0' && c <= '9') {
        return c - '0';
    }

    if (c >= 'a' && c <= 'f') {
        return c - 'a' + 10;
    }

    if (c >= 'A' && c <= 'F') {
        return c - 'A' + 10;
    }

    return -1;
}


int
zkl_text_hex_read(uint8_t *bytes, size_t n, const char *text)
{
    int     high, low;
    size_t  i;

    for (i = 0; i < n; i++) {
        high = zkl_text_hex_digit(*text++);
        low = zkl_text_hex_digit(*text++);

        if (high == -1 || low == -1) {
            return -1;
        }

        bytes[i] = (uint8_t) (high << 4 | low);
    }

    return 0;
}


char *
zkl_text_hex_write(char *p, const uint8_t *bytes, size_t n)
{
    size_t  i;

    for (i = 0; i < n; i++) {
        *p++ = zkl_hex_digits[bytes[i] >> 4];
        *p++ = zkl_hex_digits[bytes[i] & 0xf];
    }

    return p;
}
