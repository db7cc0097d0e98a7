/* why: which field a check refused. See kvp_why in types.h. */
#ifndef KVPI_WHY_H
#define KVPI_WHY_H

#include <kvpager/types.h>

/* Is the value outside lowest..highest? Then `why`, unless NULL, says so. */
int kvpi_why_range(kvp_why *why, const char *field, uint64_t value, uint64_t lowest,
                   uint64_t highest);

/* The same for a field of an array: "keys[3].end". */
int kvpi_why_element(kvp_why *why, const char *array, uint64_t index, const char *field,
                     uint64_t value, uint64_t lowest, uint64_t highest);

/* An entry of an array of numbers that must not be negative is: 1. */
int kvpi_why_negative(kvp_why *why, const char *array, uint64_t index, int32_t value);

/* Is it so? Then `why`, unless NULL, says "`field` is `value`: `text`", or, with value NULL,
 * "`field`: `text`". */
int kvpi_why_if(kvp_why *why, int is_wrong, const char *field, const uint64_t *value,
                const char *text);

/* Nothing is wrong. */
void kvpi_why_clear(kvp_why *why);

/* What the check of a struct begins with: is it there, and of a size that it may have? */
int kvpi_why_missing(kvp_why *why, const void *given, const void *known, const char *name);

#endif
