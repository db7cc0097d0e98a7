/* Figures as people read them: a short text by value, so that a table's row is one expression. */
#ifndef KVPI_TEXT_H
#define KVPI_TEXT_H

#include <stdint.h>
#include <stdio.h>

/* 27 characters hold the largest 64-bit number with its separators. */
typedef struct kvpi_text {
    char of[32];
} kvpi_text;

/* 1234567 -> "1,234,567" */
kvpi_text kvpi_text_count(uint64_t number);

/* "84.9 %"; 0.0 % of nothing. */
kvpi_text kvpi_text_percent(uint64_t part, uint64_t whole);
kvpi_text kvpi_text_share(double part, double whole);

/* "18.4 us": three or four digits and the unit that makes them readable. */
kvpi_text kvpi_text_duration(double ns);

/* The same, but as "1:02:03" from 1,000 seconds on. */
kvpi_text kvpi_text_span(double ns);

/* "54.7 GiB" */
kvpi_text kvpi_text_bytes(double n_bytes);

/* "1:02:03" */
kvpi_text kvpi_text_clock(uint64_t us);

/* Print the row of a table: label (16 columns), value (16), what it means. */
void kvpi_text_row(FILE *file, const char *label, kvpi_text value, const char *meaning);

/* Print two blanks and a bar, `cells` wide for a ratio of 1, nothing when it is too short to show:
 * eighths of a cell where the locale's character set is UTF-8, whole cells in ASCII elsewhere. */
void kvpi_text_bar(FILE *file, double ratio, int cells);

#endif
