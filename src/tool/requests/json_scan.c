/* See json_scan.h. The NUL behind the text ends every loop: it is no blank, digit or letter. */
#include "tool/requests/json_scan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_DEPTH 512u

static bool fail(kvpi_scan *scan, const char *wrong)
{
    scan->wrong = wrong;
    return false;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

void kvpi_scan_blanks(kvpi_scan *scan)
{
    while (*scan->at == ' ' || *scan->at == '\n' || *scan->at == '\r' || *scan->at == '\t')
        scan->at++;
}

bool kvpi_scan_is_cut(const kvpi_scan *scan)
{
    return scan->wrong != NULL && *scan->at == '\0';
}

/* ------------------------------------------------------------------------------------- scalars */

/* Behind the backslash. */
static bool skip_escape(kvpi_scan *scan)
{
    const char c = *scan->at;
    if (c == '\0' || strchr("\"\\/bfnrtu", c) == NULL)
        return fail(scan, "an escape that JSON does not have");
    scan->at++;
    for (int i = 0; c == 'u' && i < 4; i++, scan->at++)
        if (*scan->at == '\0' || strchr("0123456789abcdefABCDEF", *scan->at) == NULL)
            return fail(scan, "expected four hexadecimal digits");
    return true;
}

static bool skip_string(kvpi_scan *scan)
{
    for (scan->at++; *scan->at != '"'; scan->at++) {
        if (*scan->at == '\0')
            return fail(scan, "a string without an end");
        if ((unsigned char)*scan->at < 0x20)
            return fail(scan, "a control character in a string");
        if (*scan->at != '\\')
            continue;
        scan->at++;
        if (!skip_escape(scan))
            return false;
        scan->at--;
    }
    scan->at++;
    return true;
}

static bool skip_digits(kvpi_scan *scan)
{
    if (!is_digit(*scan->at))
        return fail(scan, "expected a digit");
    while (is_digit(*scan->at))
        scan->at++;
    return true;
}

static bool skip_number(kvpi_scan *scan)
{
    if (*scan->at == '-')
        scan->at++;
    if (scan->at[0] == '0' && is_digit(scan->at[1]))
        return fail(scan, "a number that begins with 0");
    if (!skip_digits(scan))
        return false;
    if (*scan->at == '.') {
        scan->at++;
        if (!skip_digits(scan))
            return false;
    }
    if (*scan->at != 'e' && *scan->at != 'E')
        return true;
    scan->at++;
    if (*scan->at == '+' || *scan->at == '-')
        scan->at++;
    return skip_digits(scan);
}

static bool skip_scalar(kvpi_scan *scan)
{
    static const char *const words[] = {"true", "false", "null"};
    if (*scan->at == '"')
        return skip_string(scan);
    if (*scan->at == '-' || is_digit(*scan->at))
        return skip_number(scan);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        const size_t n = strlen(words[i]);
        if (strncmp(scan->at, words[i], n) == 0) {
            scan->at += n;
            return true;
        }
    }
    return fail(scan, *scan->at == '\0' ? "the value ends here" : "expected a value");
}

/* --------------------------------------------------------------------------- arrays and objects */

static bool skip_name(kvpi_scan *scan)
{
    kvpi_scan_blanks(scan);
    if (*scan->at != '"')
        return fail(scan, "expected a name in quotes");
    if (!skip_string(scan))
        return false;
    kvpi_scan_blanks(scan);
    if (*scan->at != ':')
        return fail(scan, "expected ':'");
    scan->at++;
    return true;
}

/* What stands open: bit d of `objects`: the d-th is an object. */
typedef struct nesting {
    uint64_t objects[MAX_DEPTH / 64];
    unsigned depth;
} nesting;

static bool is_object(const nesting *open)
{
    const unsigned d = open->depth - 1;
    return (open->objects[d / 64] >> d % 64 & 1) != 0;
}

static bool push(kvpi_scan *scan, nesting *open)
{
    const unsigned d = open->depth;
    const uint64_t bit = UINT64_C(1) << d % 64;
    if (d == MAX_DEPTH)
        return fail(scan, "arrays and objects stand more than 512 deep");
    open->objects[d / 64] =
        *scan->at == '{' ? open->objects[d / 64] | bit : open->objects[d / 64] & ~bit;
    open->depth++;
    scan->at++;
    return true;
}

/* Behind a value: closes what ends here. Gives false when it is wrong, or nothing stands open. */
static bool go_on(kvpi_scan *scan, nesting *open)
{
    while (open->depth > 0) {
        kvpi_scan_blanks(scan);
        if (*scan->at == ',') {
            scan->at++;
            return !is_object(open) || skip_name(scan);
        }
        if (*scan->at != (is_object(open) ? '}' : ']'))
            return fail(scan, is_object(open) ? "expected ',' or '}'" : "expected ',' or ']'");
        scan->at++;
        open->depth--;
    }
    return false;
}

/* Numbers in a row, which traces consist of. */
static bool skip_numbers(kvpi_scan *scan)
{
    const char *end = NULL;
    if (scan->arrays == NULL)
        return false;
    if (scan->is_first) {
        end = kvpi_number_arrays_read(scan->arrays, scan->at);
    } else {
        const kvpi_number_array *known = kvpi_number_arrays_find(scan->arrays, scan->at);
        end = known != NULL ? known->end : NULL;
    }
    scan->at = end != NULL ? end : scan->at;
    return end != NULL;
}

bool kvpi_scan_skip(kvpi_scan *scan)
{
    nesting open = {{0}, 0};
    for (;;) {
        kvpi_scan_blanks(scan);
        if (*scan->at != '{' && *scan->at != '[') {
            if (!skip_scalar(scan))
                return false;
        } else if (*scan->at == '{' || !skip_numbers(scan)) {
            if (!push(scan, &open))
                return false;
            kvpi_scan_blanks(scan);
            if (*scan->at != (is_object(&open) ? '}' : ']')) {
                if (is_object(&open) && !skip_name(scan))
                    return false;
                continue;
            }
            scan->at++;
            open.depth--;
        }
        if (!go_on(scan, &open))
            return scan->wrong == NULL;
    }
}

static size_t find_name(const char *const names[], size_t n, const char *name, size_t n_bytes)
{
    size_t i = 0;
    while (i < n && (strncmp(names[i], name, n_bytes) != 0 || names[i][n_bytes] != '\0'))
        i++;
    return i;
}

/* A name and its value. */
static bool take_field(kvpi_scan *scan, const char *const names[], size_t n, kvpi_value values[],
                       kvpi_scan_other *other, void *context)
{
    kvpi_scan_blanks(scan);
    const char *name = scan->at;
    if (!skip_name(scan))
        return false;
    size_t n_bytes = 0;
    (void)kvpi_value_text(name, &n_bytes);
    const size_t i = find_name(names, n, name + 1, n_bytes);
    kvpi_scan_blanks(scan);
    if (i < n && values[i] != NULL) {
        scan->at = name;
        return fail(scan, "a name that was there before");
    }
    if (i < n)
        values[i] = scan->at;
    else if (other != NULL)
        other(context, name + 1, n_bytes);
    return kvpi_scan_skip(scan);
}

bool kvpi_scan_fields(kvpi_scan *scan, const char *const names[], size_t n, kvpi_value values[],
                      kvpi_scan_other *other, void *context)
{
    for (size_t i = 0; i < n; i++)
        values[i] = NULL;
    kvpi_scan_blanks(scan);
    if (*scan->at != '{')
        return fail(scan, "expected an object");
    scan->at++;
    kvpi_scan_blanks(scan);
    if (*scan->at == '}') {
        scan->at++;
        return true;
    }
    for (;;) {
        if (!take_field(scan, names, n, values, other, context))
            return false;
        kvpi_scan_blanks(scan);
        const char c = *scan->at;
        if (c != ',' && c != '}')
            return fail(scan, "expected ',' or '}'");
        scan->at++;
        if (c == '}')
            return true;
    }
}

/* --------------------------------------------------------------- what was passed over before */

static kvpi_value skip_to_item(const char *at)
{
    kvpi_scan scan = {.at = at};
    kvpi_scan_blanks(&scan);
    return *scan.at == ']' ? NULL : scan.at;
}

kvpi_value kvpi_array_first(kvpi_value array)
{
    return skip_to_item(array + 1);
}

kvpi_value kvpi_array_after(const char *end)
{
    kvpi_scan scan = {.at = end};
    kvpi_scan_blanks(&scan);
    return *scan.at == ',' ? skip_to_item(scan.at + 1) : NULL;
}

kvpi_value kvpi_array_next(kvpi_value item)
{
    kvpi_scan scan = {.at = item};
    (void)kvpi_scan_skip(&scan);
    return kvpi_array_after(scan.at);
}

bool kvpi_value_whole(kvpi_value value, uint64_t *out)
{
    uint64_t whole = 0;
    const char *at = value;
    for (; is_digit(*at); at++) {
        const uint64_t digit = (uint64_t)(*at - '0');
        if (whole > UINT64_MAX / 10 || whole * 10 > UINT64_MAX - digit)
            return false;
        whole = whole * 10 + digit;
    }
    *out = whole;
    return at != value && *at != '.' && *at != 'e' && *at != 'E';
}

bool kvpi_value_number(kvpi_value value, double *out)
{
    if (*value != '-' && !is_digit(*value))
        return false;
    *out = strtod(value, NULL);
    return true;
}

const char *kvpi_value_end(kvpi_value value)
{
    return value + strspn(value, "+-.0123456789eE");
}

const char *kvpi_value_text(kvpi_value value, size_t *out_bytes)
{
    if (*value != '"')
        return NULL;
    const char *at = value + 1;
    while (*at != '"')
        at += *at == '\\' ? 2 : 1;
    *out_bytes = (size_t)(at - value) - 1;
    return value + 1;
}

kvpi_value_words kvpi_value_say(kvpi_value value)
{
    kvpi_value_words words;
    size_t n = 0;
    const char *text = kvpi_value_text(value, &n);
    if (*value == '[' || *value == '{')
        snprintf(words.of, sizeof words.of, "%s", *value == '[' ? "an array" : "an object");
    else if (text != NULL)
        snprintf(words.of, sizeof words.of, "\"%.*s%s", n < 40 ? (int)n : 40, text,
                 n < 40 ? "\"" : "...");
    else if (*value == '-' || is_digit(*value))
        snprintf(words.of, sizeof words.of, "%.*s", (int)(kvpi_value_end(value) - value), value);
    else
        snprintf(words.of, sizeof words.of, "%.*s",
                 (int)strspn(value, "abcdefghijklmnopqrstuvwxyz"), value);
    return words;
}
