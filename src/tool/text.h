/* Figures as people read them: a short text by value, so that a table's row is one expression. */
#ifndef KVPI_TEXT_H
#define KVPI_TEXT_H

#include <stdint.h>

/* 27 characters hold the largest 64-bit number with its separators. */
typedef struct kvpi_text {
    char of[32];
} kvpi_text;

/* 1234567 -> "1,234,567" */
kvpi_text kvpi_text_count(uint64_t number);

#endif
