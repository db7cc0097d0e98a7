/* ahead: the lines that come 5 or 12 KB after those in use, asked for while these are used.
 *
 * K and V of a head are cut into pieces of up to 256 bytes, in the order in which they are used: K,
 * V, then the next head's or the next tile's. Sixteen pieces (in most layouts 4 KB in a row) are
 * requested column by column: the first line of each, the second of each, and so on. A processor
 * with a page prefetcher has then seen some lines of a page before they are used. Requested line
 * after line, both would fetch the same lines.
 *
 * Processors of AMD are the other way round: theirs follow lines that are requested in the order of
 * addresses. There a piece is up to 4 KB of rows that lie side by side, requested line after line,
 * and from further ahead. bench/TRIED.md has the gain of distance and order on both.
 */
#ifndef KVPI_AHEAD_H
#define KVPI_AHEAD_H

#include "attention/fast/tile.h"

/* Rows of K or V in a tile. */
struct kvpi_cut {
    const kvp_layer_part *part;
    const unsigned char *const *rows; /* as in kvpi_places */
    uint32_t row_bytes;               /* 0: these are not used as they lie */
};

/* K and V of one head of a tile, cut, and behind them the pieces that come next. */
struct kvpi_pieces {
    const unsigned char **at; /* [n_k + n_v + n_ahead] */
    uint32_t n_k;
    uint32_t n_v;
    uint32_t lines; /* of a piece; 1..4, in order of addresses 16..64 */
    uint32_t n_ahead;
    uint32_t first_unit; /* pieces */
    uint32_t in_order;
    uint32_t distance; /* lines */
    uint32_t head;
    size_t k_stride, v_stride; /* from head to head */
};

/* How many pieces a tile can become, with those that come next. */
uint64_t kvpi_pieces_max(uint32_t k_row_bytes, uint32_t v_row_bytes);

/* How a processor is asked. */
enum kvpi_order {
    KVPI_IN_COLUMNS,
    KVPI_EARLY,   /* in columns, a whole head before the use */
    KVPI_IN_ORDER /* of addresses, where rows lie side by side */
};

void kvpi_pieces_make(struct kvpi_pieces *pieces, const struct kvpi_places *places,
                      const struct kvpi_cut *k, const struct kvpi_cut *v, uint32_t head,
                      enum kvpi_order order);

/* Whether what was made for one head is right for others, too. */
int kvpi_pieces_fit_all_heads(const struct kvpi_pieces *pieces);

/* What comes behind `head`: the first head of `next`; NULL: the next head of the same tile,
 * whichever that is. */
void kvpi_pieces_put_next(struct kvpi_pieces *pieces, uint32_t head,
                          const struct kvpi_pieces *next);

/* What is asked for while `head` is used, for which these pieces are. */
void kvpi_ahead_begin(const struct kvpi_pieces *pieces, uint32_t head, struct kvpi_ahead *out);

#endif
