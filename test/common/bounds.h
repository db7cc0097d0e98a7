/* bounds: exactly one too many. A table has the bounds of a decoder's fields; each is tried with a
 * message that is right but for that field: at the bound, one below and one above. */
#ifndef TEST_BOUNDS_H
#define TEST_BOUNDS_H

#include <limits.h>

#include "mocka.h"

#define NO_BOUND INT_MIN /* there is no such value, or it is not refused because of this field */

struct bound {
    const char *field;
    uint64_t least, most; /* that are accepted */
    int below, above;     /* what refuses least - 1 and most + 1; NO_BOUND: not tried */
};

/* Decode a message with that value in the field: 0 if it is accepted, else what refuses it. */
typedef int bounds_try(const struct bound *bound, void *context, uint64_t value);

/* Gives 1 and tells, if it is another. */
static inline int bounds_differ(const struct bound *b, bounds_try *decode, void *context,
                                uint64_t value, int expected)
{
    const int got = decode(b, context, value);
    if (got != expected)
        print_error("%s = %lld: %d, not %d\n", b->field, (long long)value, got, expected);
    return got != expected;
}

/* Gives how many of the values are not taken or refused as the bound says. */
static inline int bounds_wrong(const struct bound *b, bounds_try *decode, void *context)
{
    int n = bounds_differ(b, decode, context, b->least, 0);
    n += b->most != b->least && bounds_differ(b, decode, context, b->most, 0);
    n += b->below != NO_BOUND && bounds_differ(b, decode, context, b->least - 1, b->below);
    return n + (b->above != NO_BOUND && bounds_differ(b, decode, context, b->most + 1, b->above));
}

#endif
