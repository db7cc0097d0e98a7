/* text: what a client may see of a sample's tokens.
 *
 * Tokens end anywhere: inside a character, and inside a stop string. What is handed out is UTF-8
 * made of whole characters, and never the beginning of a stop string that may still become one.
 * Bytes that are no UTF-8 become U+FFFD. */
#ifndef KVPI_SERVE_TEXT_H
#define KVPI_SERVE_TEXT_H

#include <stddef.h>

enum { KVPI_STOPS_MOST = 16, KVPI_STOP_BYTES_MOST = 256 };

typedef struct kvpi_stops {
    size_t n;
    size_t n_bytes[KVPI_STOPS_MOST]; /* 1..KVPI_STOP_BYTES_MOST */
    char strings[KVPI_STOPS_MOST][KVPI_STOP_BYTES_MOST];
} kvpi_stops;

/* All zero is an empty text. */
typedef struct kvpi_text {
    char *bytes; /* [capacity] characters that were not handed out */
    size_t n;
    size_t capacity;
    char part[4]; /* the beginning of a character */
    size_t n_part;
    int is_stopped; /* a stop string was found: it and what follows it are gone */
} kvpi_text;

/* Adds the bytes of a token. -1: no memory. */
int kvpi_text_put(kvpi_text *text, const char *bytes, size_t n, const kvpi_stops *stops);

/* Nothing will follow: gives up what is held back, and the beginning of a character. */
int kvpi_text_end(kvpi_text *text);

/* Says how many bytes of text->bytes may be handed out now. */
size_t kvpi_text_ready(const kvpi_text *text, const kvpi_stops *stops);

/* Removes bytes that were handed out. */
void kvpi_text_drop(kvpi_text *text, size_t n);

void kvpi_text_free(kvpi_text *text);

#endif
