/* text: whole characters, and stop strings. */
#include "text.h"

#include <stdlib.h>
#include <string.h>

static const char replacement[] = "\xEF\xBF\xBD"; /* U+FFFD */

/* ----------------------------------------------------------------------------------- characters */

/* How many bytes a character has that begins with this one; 0: none does. */
static size_t character_bytes(unsigned char first)
{
    if (first < 0x80)
        return 1;
    if (first >= 0xC2 && first < 0xE0)
        return 2;
    if (first >= 0xE0 && first < 0xF0)
        return 3;
    return first >= 0xF0 && first < 0xF5 ? 4 : 0;
}

/* May this byte follow? The second one excludes long forms, surrogates, and the rest above
 * U+10FFFF. */
static int may_follow(const char *part, size_t n_part, unsigned char byte)
{
    const unsigned char first = (unsigned char)part[0];
    unsigned char low = 0x80, high = 0xBF;
    if (n_part == 1 && first == 0xE0)
        low = 0xA0;
    else if (n_part == 1 && first == 0xED)
        high = 0x9F;
    else if (n_part == 1 && first == 0xF0)
        low = 0x90;
    else if (n_part == 1 && first == 0xF4)
        high = 0x8F;
    return byte >= low && byte <= high;
}

static int append(kvpi_text *text, const char *bytes, size_t n)
{
    if (text->capacity - text->n < n) {
        const size_t capacity = 2 * text->capacity + n + 64;
        char *larger = realloc(text->bytes, capacity);
        if (larger == NULL)
            return -1;
        text->bytes = larger;
        text->capacity = capacity;
    }
    memcpy(&text->bytes[text->n], bytes, n);
    text->n += n;
    return 0;
}

static int put_byte(kvpi_text *text, char byte)
{
    if (text->n_part > 0 && !may_follow(text->part, text->n_part, (unsigned char)byte)) {
        text->n_part = 0;
        if (append(text, replacement, 3) != 0)
            return -1;
    }
    if (text->n_part == 0 && character_bytes((unsigned char)byte) == 0)
        return append(text, replacement, 3);
    text->part[text->n_part++] = byte;
    if (text->n_part < character_bytes((unsigned char)text->part[0]))
        return 0;
    const size_t n = text->n_part;
    text->n_part = 0;
    return append(text, text->part, n);
}

/* ---------------------------------------------------------------------------------------- stops */

/* Does the text end with a stop string? The first that is complete counts, however the tokens were
 * cut; of several, the longest. */
static void cut_at_stop(kvpi_text *text, const kvpi_stops *stops)
{
    size_t longest = 0;
    for (size_t i = 0; i < stops->n; i++) {
        const size_t n = stops->n_bytes[i];
        if (n > longest && n <= text->n &&
            memcmp(&text->bytes[text->n - n], stops->strings[i], n) == 0)
            longest = n;
    }
    text->n -= longest;
    text->is_stopped = longest > 0;
}

/* The longest end of the text with which the stop string begins. */
static size_t begun(const kvpi_text *text, const char *stop, size_t n_stop)
{
    size_t n = n_stop - 1 < text->n ? n_stop - 1 : text->n;
    while (n > 0 && memcmp(&text->bytes[text->n - n], stop, n) != 0)
        n--;
    return n;
}

/* ---------------------------------------------------------------------------------------- calls */

int kvpi_text_put(kvpi_text *text, const char *bytes, size_t n, const kvpi_stops *stops)
{
    if (text->is_stopped)
        return 0;
    for (size_t i = 0; i < n && !text->is_stopped; i++) {
        const size_t before = text->n;
        if (put_byte(text, bytes[i]) != 0)
            return -1;
        if (text->n > before)
            cut_at_stop(text, stops);
    }
    return 0;
}

int kvpi_text_end(kvpi_text *text)
{
    const int has_part = text->n_part > 0 && !text->is_stopped;
    text->n_part = 0;
    return has_part ? append(text, replacement, 3) : 0;
}

size_t kvpi_text_ready(const kvpi_text *text, const kvpi_stops *stops)
{
    size_t held = 0;
    for (size_t i = 0; i < stops->n && !text->is_stopped && text->n > 0; i++) {
        const size_t n = begun(text, stops->strings[i], stops->n_bytes[i]);
        held = held > n ? held : n;
    }
    /* A stop string that is cut inside a character: none of it is handed out. */
    size_t ready = text->n - held;
    while (ready > 0 && ready < text->n && ((unsigned char)text->bytes[ready] & 0xC0) == 0x80)
        ready--;
    return ready;
}

void kvpi_text_drop(kvpi_text *text, size_t n)
{
    if (n == 0)
        return;
    memmove(text->bytes, &text->bytes[n], text->n - n);
    text->n -= n;
}

void kvpi_text_free(kvpi_text *text)
{
    free(text->bytes);
    memset(text, 0, sizeof *text);
}
