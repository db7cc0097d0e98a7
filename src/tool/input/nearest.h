/* "Did you mean": the known word nearest to a mistyped one. */
#ifndef KVPI_NEAREST_H
#define KVPI_NEAREST_H

typedef struct kvpi_nearest {
    const char *word; /* what was typed */
    const char *best; /* NULL: nothing is near */
    unsigned steps;   /* letters that differ */
} kvpi_nearest;

/* Begin. Keeps `word` by reference. */
kvpi_nearest kvpi_nearest_begin(const char *word);

/* Consider a word: near are those that differ by a third of the letters that were typed at most, by
 * case or, from three letters on, by what follows them. The nearest is kept by reference, the first
 * of equals. NULL is ignored. */
void kvpi_nearest_try(kvpi_nearest *nearest, const char *candidate);

typedef struct kvpi_nearest_text {
    char of[160];
} kvpi_nearest_text;

/* Give ": did you mean 'WORD'?", or "" when nothing was near. */
kvpi_nearest_text kvpi_nearest_say(const kvpi_nearest *nearest);

#endif
