/* why: which field a check refused, as numbers and as a sentence.
 *
 * The core prints nothing, so numbers are written here digit by digit. The ends of a range are
 * written as the headers write them: 2^31-1 rather than 2147483647.
 */
#include "base/why.h"

#include <string.h>

/* A text that grows to the end of its array, and is cut there. */
struct line {
    char *at;
    char *end; /* the last char, for the 0 */
};

static struct line line_of(char *text, size_t size)
{
    return (struct line){text, text + size - 1};
}

static void put(struct line *line, const char *text)
{
    for (; *text != 0 && line->at < line->end; text++) {
        *line->at++ = *text;
    }
    *line->at = 0;
}

static void put_decimal(struct line *line, uint64_t number)
{
    char digits[24];
    char *at = &digits[sizeof(digits) - 1];
    *at = 0;
    do {
        *--at = (char)('0' + number % 10);
        number /= 10;
    } while (number > 0);
    put(line, at);
}

/* 2^k, 2^k-1, 2^k-2 from 2^20 on; else the digits. */
static void put_end(struct line *line, uint64_t number)
{
    static const char *const less[] = {"", "-1", "-2"};
    for (uint64_t d = 0; d < 3; d++) {
        for (uint64_t k = 20; k < 64; k++) {
            if (number == ((uint64_t)1 << k) - d) {
                put(line, "2^");
                put_decimal(line, k);
                put(line, less[d]);
                return;
            }
        }
    }
    put_decimal(line, number);
}

static void put_range(struct line *line, uint64_t lowest, uint64_t highest)
{
    put(line, ", expected ");
    put_end(line, lowest);
    if (highest > lowest) {
        put(line, highest == lowest + 1 ? " or " : " to ");
        put_end(line, highest);
    }
}

void kvpi_why_clear(kvp_why *why)
{
    if (why != NULL) {
        memset(why, 0, sizeof(*why));
    }
}

static struct line begin_line(kvp_why *why, const char *field)
{
    struct line name = line_of(why->field, sizeof(why->field));
    struct line text = line_of(why->text, sizeof(why->text));
    put(&name, field);
    put(&text, field);
    return text;
}

int kvpi_why_range(kvp_why *why, const char *field, uint64_t value, uint64_t lowest,
                   uint64_t highest)
{
    if (value >= lowest && value <= highest) {
        return 0;
    }
    if (why != NULL) {
        kvpi_why_clear(why);
        struct line text = begin_line(why, field);
        why->value = (double)value;
        why->lowest = (double)lowest;
        why->highest = (double)highest;
        put(&text, " is ");
        put_decimal(&text, value);
        put_range(&text, lowest, highest);
    }
    return 1;
}

int kvpi_why_element(kvp_why *why, const char *array, uint64_t index, const char *field,
                     uint64_t value, uint64_t lowest, uint64_t highest)
{
    char name[sizeof(why->field)];
    struct line line = line_of(name, sizeof(name));
    if (value >= lowest && value <= highest) {
        return 0;
    }
    put(&line, array);
    put(&line, "[");
    put_decimal(&line, index);
    put(&line, "]");
    put(&line, field);
    return kvpi_why_range(why, name, value, lowest, highest);
}

int kvpi_why_negative(kvp_why *why, const char *array, uint64_t index, int32_t value)
{
    if (why != NULL) {
        struct line name = line_of(why->field, sizeof(why->field));
        struct line text = line_of(why->text, sizeof(why->text));
        kvpi_why_clear(why);
        put(&name, array);
        put(&name, "[");
        put_decimal(&name, index);
        put(&name, "]");
        put(&text, why->field);
        put(&text, " is -");
        put_decimal(&text, (uint64_t)(-(int64_t)value));
        put_range(&text, 0, INT32_MAX);
        why->value = value;
        why->highest = INT32_MAX;
    }
    return 1;
}

int kvpi_why_if(kvp_why *why, int is_wrong, const char *field, const uint64_t *value,
                const char *text)
{
    if (is_wrong && why != NULL) {
        kvpi_why_clear(why);
        struct line line = begin_line(why, field);
        if (value != NULL) {
            why->value = (double)*value;
            put(&line, " is ");
            put_decimal(&line, *value);
        }
        put(&line, ": ");
        put(&line, text);
    }
    return is_wrong;
}

int kvpi_why_missing(kvp_why *why, const void *given, const void *known, const char *name)
{
    if (given == NULL) {
        return kvpi_why_if(why, 1, name, NULL, "is NULL");
    }
    if (known == NULL) {
        uint64_t size;
        size_t bytes;
        memcpy(&bytes, given, sizeof(bytes));
        size = bytes;
        return kvpi_why_if(why, 1, "struct_size", &size,
                           "no size that it may have, or not zeros behind this version's fields");
    }
    return 0;
}
