
/*
 * Texts: base64url, hexadecimal digits, UTF-8, durations.
 *
 * Plain C, no I/O, no allocation, no nginx, no ZooKeeper.  Any thread may call
 * the functions.  Inputs are a pointer and a length and need not end in NUL;
 * outputs go to a buffer of the caller, of the size given at each function.
 */


#ifndef _ZKL_TEXT_H_INCLUDED_
#define _ZKL_TEXT_H_INCLUDED_


#include <stddef.h>
#include <stdint.h>


/* characters of n bytes in base64url, and bytes of len such characters */
#define ZKL_BASE64_LEN(n)           (((n) * 4 + 2) / 3)
#define ZKL_BASE64_BYTES(len)       ((len) * 3 / 4)

/* the longest duration that is taken, ten years in milliseconds */
#define ZKL_DURATION_MAX        ((int64_t) 315360000000)

/* in the place of a code point: not UTF-8 */
#define ZKL_BROKEN              0xffffffff


extern const char  zkl_base64_digits[];     /* by value; url-safe */
extern const char  zkl_hex_digits[];        /* by value, lower case */


/*
 * Writes the len bytes at data as base64url without padding (RFC 4648, 5) to
 * buf, which has room for ZKL_BASE64_LEN(len) bytes.  Returns this number;
 * no NUL.
 */
size_t zkl_text_base64_write(char *buf, const void *data, size_t len);

/*
 * Reads base64url to data, which has room for ZKL_BASE64_BYTES(len) bytes, and
 * sets *n to this number.  Returns 0, or -1 if zkl_text_base64_write() would
 * not write text, to the last bit; the bytes at data are undefined then.
 */
int zkl_text_base64_read(void *data, size_t *n, const char *text, size_t len);

/*
 * Reads digits, of which there may be none.  Returns the number, or -1 if a
 * byte of text is no digit or the number is greater than max.
 */
int64_t zkl_text_number_read(const char *text, size_t len, int64_t max);

/*
 * Reads a duration: digits, an optional fraction of up to three digits, and a
 * unit of "ms" (no fraction), "s", "m", "h", "d" or none, which is seconds.
 * Returns milliseconds, 0 to ZKL_DURATION_MAX, or -1 if text is none.
 */
int64_t zkl_text_duration_read(const char *text, size_t len);

/*
 * Returns the code point at *at, which is below len, and moves *at behind it;
 * ZKL_BROKEN: that is not UTF-8 (RFC 3629).
 */
uint32_t zkl_text_utf8_next(const char *text, size_t len, size_t *at);

/* Returns 1 if text is well-formed UTF-8 (RFC 3629), else 0. */
int zkl_text_utf8_check(const char *text, size_t len);

/*
 * Returns the bytes of text that come before the first control character (C0,
 * DEL or C1) and before the first byte that is not UTF-8.
 */
size_t zkl_text_shown_len(const char *text, size_t len);

/* Returns 1 if text is UTF-8 without control characters, or empty, else 0. */
int zkl_text_shown_check(const char *text, size_t len);

/*
 * Copies text, cut to size bytes at the end of a character, with "?" in the
 * place of each byte that a line cannot show.  Returns the length; no NUL.
 */
size_t zkl_text_show(char *buf, size_t size, const char *text, size_t len);

/* Returns 1 if text has only bytes of the C string letters, else 0. */
int zkl_text_letters_check(const char *text, size_t len, const char *letters);

/* Returns the value of a hexadecimal digit of either case, or -1. */
int zkl_text_hex_digit(char c);

/*
 * Reads 2 * n hexadecimal digits of either case.  Returns 0, or -1 if a byte of
 * text is none.
 */
int zkl_text_hex_read(uint8_t *bytes, size_t n, const char *text);

/* Writes the 2 * n lower-case digits of the bytes to p, and returns the end. */
char *zkl_text_hex_write(char *p, const uint8_t *bytes, size_t n);


#endif /* _ZKL_TEXT_H_INCLUDED_ */
