/* See escape.h. */
#include "tool/input/escape.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define ESCAPED_BYTES 4u /* \xNN */

static bool is_shown(uint32_t c)
{
    return c >= 0x20 && (c < 0x7f || c > 0x9f) && (c < 0x200b || c > 0x200f) &&
           (c < 0x2028 || c > 0x202e) && (c < 0x2060 || c > 0x206f) && c != 0xfeff &&
           (c < 0xd800 || c > 0xdfff) && c <= 0x10ffff;
}

/* How many bytes the character has that begins here; 0: it is none, or is not shown. */
static size_t shown_bytes(const char *text)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    const unsigned char *at = (const unsigned char *)text;
    const size_t n = at[0] < 0x80 ? 1 : at[0] >> 5 == 6 ? 2 : at[0] >> 4 == 14 ? 3 : 4;
    uint32_t c = n == 1 ? at[0] : at[0] & (0xffu >> (n + 1));
    if (n == 4 && at[0] >> 3 != 30)
        return 0;
    for (size_t i = 1; i < n; i++) {
        if (at[i] >> 6 != 2)
            return 0;
        c = c << 6 | (at[i] & 0x3fu);
    }
    return c >= least[n] && is_shown(c) ? n : 0;
}

/* One character, or one byte as \xNN: gives its bytes, and how many of the text it stands for. */
static size_t take(const char *text, char out[5], size_t *out_n)
{
    const size_t n = shown_bytes(text);
    if (n == 0) {
        *out_n = ESCAPED_BYTES;
        snprintf(out, ESCAPED_BYTES + 1, "\\x%02x", (unsigned)(unsigned char)*text);
        return 1;
    }
    *out_n = n;
    memcpy(out, text, n);
    return n;
}

kvpi_escaped kvpi_escape(const char *text)
{
    kvpi_escaped escaped;
    char one[5];
    size_t used = 0, n;
    while (*text != '\0') {
        text += take(text, one, &n);
        if (used + n + sizeof "..." > sizeof escaped.of) {
            memcpy(escaped.of + used, "...", 3);
            used += 3;
            break;
        }
        memcpy(escaped.of + used, one, n);
        used += n;
    }
    escaped.of[used] = '\0';
    return escaped;
}

static void put(FILE *file, const char *text)
{
    char one[5];
    size_t n;
    while (*text != '\0') {
        text += take(text, one, &n);
        fwrite(one, 1, n, file);
    }
}

void kvpi_escape_print(FILE *file, const char *format, va_list arguments)
{
    char few[2048];
    va_list again;
    va_copy(again, arguments);
    const int n = vsnprintf(few, sizeof few, format, arguments);
    char *many = n < (int)sizeof few ? NULL : malloc((size_t)n + 1);
    if (many != NULL)
        vsnprintf(many, (size_t)n + 1, format, again);
    va_end(again);
    put(file, many != NULL ? many : few);
    free(many);
}
