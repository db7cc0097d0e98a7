/* ahead: the lines that come 5 KB after those in use, asked for while these are used.
 *
 * K and V of a head are cut into pieces of up to 256 bytes, in the order in which they are used:
 * K, V, then the next head's or the next tile's. Sixteen pieces, in most layouts 4 KB side by side,
 * are asked for column by column: the first line of each, the second of each, and so on. A processor
 * that fetches pages on its own then has seen some lines of a page before the work is there, and
 * does the rest; line after line, both would ask for the same ones. What distance and order give is
 * in bench/README.md. */
#ifndef KVPI_AHEAD_H
#define KVPI_AHEAD_H

#include "attention/tile.h"

/* Rows of K or V in a tile. */
struct kvpi_cut {
    const kvp_layer_part *part;
    const unsigned char *const *rows; /* as in kvpi_places */
    uint32_t row_bytes;               /* 0: these are not used as they lie */
};

/* K and V of a tile's first head, cut. */
struct kvpi_pieces {
    const unsigned char **at; /* [n_k + n_v] */
    uint32_t n_k;
    uint32_t n_v;
    uint32_t lines;            /* of a piece; 1..4 */
    size_t k_stride, v_stride; /* from head to head */
};

/* How many pieces a tile's can become. */
uint64_t kvpi_pieces_max(uint32_t k_row_bytes, uint32_t v_row_bytes);

void kvpi_pieces_make(struct kvpi_pieces *pieces, const struct kvpi_places *places,
                      const struct kvpi_cut *k, const struct kvpi_cut *v);

/* What comes ahead of one head of a tile. */
struct kvpi_ahead_list {
    const unsigned char **at; /* [n_k + n_v] of the tile, at least 4 */
    uint32_t head;
};

/* Makes the list for `head` of `now`, behind which comes `next_head` of `next`: the same tile, or
 * the next one, which may have no pieces. */
void kvpi_ahead_list_make(struct kvpi_ahead_list *list, const struct kvpi_pieces *now,
                          uint32_t head, const struct kvpi_pieces *next, uint32_t next_head);

/* Whether the list is right for all heads but the last. */
int kvpi_ahead_list_serves_all(const struct kvpi_pieces *now);

/* From the list's first piece on. */
struct kvpi_ahead kvpi_ahead_begin(const struct kvpi_ahead_list *list,
                                   const struct kvpi_pieces *now, uint32_t head);

#endif
