/* Owns which words are near: the number of letters to insert, to leave out, to change or to swap
 * with their neighbour, without regard to case.
 */
#include "tool/input/nearest.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

enum { MAX_LETTERS = 63, FAR = MAX_LETTERS + 1 };

static int lower(char c)
{
    return tolower((unsigned char)c);
}

static unsigned least(unsigned a, unsigned b)
{
    return a < b ? a : b;
}

/* Row by row of the usual table; two rows back for neighbours that were swapped. */
static unsigned distance(const char *a, const char *b)
{
    const size_t n = strlen(a), m = strlen(b);
    unsigned rows[3][MAX_LETTERS + 1];
    if (n > MAX_LETTERS || m > MAX_LETTERS)
        return FAR;
    for (size_t k = 0; k <= m; k++)
        rows[0][k] = (unsigned)k;
    for (size_t i = 1; i <= n; i++) {
        unsigned *row = rows[i % 3];
        const unsigned *above = rows[(i + 2) % 3], *second = rows[(i + 1) % 3];
        row[0] = (unsigned)i;
        for (size_t k = 1; k <= m; k++) {
            const unsigned changed = above[k - 1] + (lower(a[i - 1]) != lower(b[k - 1]));
            row[k] = least(changed, least(above[k], row[k - 1]) + 1);
            if (i > 1 && k > 1 && lower(a[i - 1]) == lower(b[k - 2]) &&
                lower(a[i - 2]) == lower(b[k - 1]))
                row[k] = least(row[k], second[k - 2] + 1);
        }
    }
    return rows[n % 3][m];
}

static int begins(const char *text, const char *with)
{
    while (*with != '\0' && lower(*text) == lower(*with))
        text++, with++;
    return *with == '\0';
}

kvpi_nearest kvpi_nearest_begin(const char *word)
{
    return (kvpi_nearest){.word = word, .best = NULL, .steps = FAR};
}

void kvpi_nearest_try(kvpi_nearest *nearest, const char *candidate)
{
    const size_t n = strlen(nearest->word);
    if (candidate == NULL)
        return;
    unsigned steps = distance(nearest->word, candidate);
    if (steps > (n + 2) / 3)
        steps = n >= 3 && begins(candidate, nearest->word) ? MAX_LETTERS : FAR;
    if (steps >= nearest->steps)
        return;
    nearest->best = candidate;
    nearest->steps = steps;
}

kvpi_nearest_text kvpi_nearest_say(const kvpi_nearest *nearest)
{
    kvpi_nearest_text text = {""};
    if (nearest->best != NULL)
        snprintf(text.of, sizeof text.of, ": did you mean '%.100s'?", nearest->best);
    return text;
}
