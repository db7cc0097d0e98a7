/* See text.h. */
#include "text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

kvpi_text kvpi_text_count(uint64_t number)
{
    kvpi_text digits, out;
    snprintf(digits.of, sizeof digits.of, "%" PRIu64, number);
    size_t n = strlen(digits.of), used = 0;
    for (size_t i = 0; i < n; i++) {
        if (i > 0 && (n - i) % 3 == 0)
            out.of[used++] = ',';
        out.of[used++] = digits.of[i];
    }
    out.of[used] = '\0';
    return out;
}
