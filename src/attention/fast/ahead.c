/* ahead: see ahead.h. */
#include "attention/fast/ahead.h"

/* In lines. A quarter of a page beyond whole pages is best, be it one, two or three of them; in
 * order of addresses, 160 to 240 lines are alike. */
enum {
    LINE = KVPI_LINE,
    MAX_LINES = 4,
    SHORT_DISTANCE = 80,
    MAX_RUN = 64, /* lines of a piece in order of addresses */
    RUN_DISTANCE = 200
};

uint64_t kvpi_pieces_max(uint32_t k_row_bytes, uint32_t v_row_bytes)
{
    return (uint64_t)2 * KVPI_TILE * ((k_row_bytes + v_row_bytes) / LINE) + RUN_DISTANCE;
}

/* Rows of each 16 keys lie side by side, so that pieces need not end where rows do. */
static int is_dense(const struct kvpi_places *places, const struct kvpi_cut *cut)
{
    return cut->row_bytes == 0 || (places->is_even && places->n_keys % 16 == 0 &&
                                   cut->part->token_stride == cut->row_bytes);
}

/* The most lines of which both kinds of rows are a multiple. */
static uint32_t lines_of_rows(const struct kvpi_cut *k, const struct kvpi_cut *v)
{
    uint32_t lines = MAX_LINES;
    while (k->row_bytes % (lines * LINE) != 0 || v->row_bytes % (lines * LINE) != 0)
        lines--;
    return lines;
}

/* The same of 16 rows side by side. */
static uint32_t lines_of_runs(const struct kvpi_cut *k, const struct kvpi_cut *v)
{
    uint32_t lines = MAX_RUN;
    while (16 * k->row_bytes % (lines * LINE) != 0 || 16 * v->row_bytes % (lines * LINE) != 0)
        lines /= 2;
    return lines;
}

/* Each `step` rows are cut as if they were one. */
static uint32_t cut_ahead(const struct kvpi_cut *cut, uint32_t n_keys, uint32_t step,
                          uint32_t lines, size_t offset, const unsigned char **out)
{
    const uint32_t n_bytes = step * cut->row_bytes;
    uint32_t n = 0;
    for (uint32_t i = 0; i < n_keys && n_bytes > 0; i += step) {
        const unsigned char *row = cut->rows[i] + offset;
        for (uint32_t at = 0; at < n_bytes; at += lines * LINE)
            out[n++] = row + at;
    }
    return n;
}

/* No further than the next head, of which alone is known where it lies. */
static uint32_t distance_of(const struct kvpi_pieces *pieces, enum kvpi_order order)
{
    const uint32_t own = (pieces->n_k + pieces->n_v) * pieces->lines;
    if (order == KVPI_IN_COLUMNS || own == 0)
        return SHORT_DISTANCE;
    return order == KVPI_EARLY || own < RUN_DISTANCE ? own : RUN_DISTANCE;
}

void kvpi_pieces_make(struct kvpi_pieces *pieces, const struct kvpi_places *places,
                      const struct kvpi_cut *k, const struct kvpi_cut *v, uint32_t head,
                      enum kvpi_order order)
{
    const int dense = is_dense(places, k) && is_dense(places, v);
    const uint32_t step = dense ? 16 : 1, n_keys = (places->n_keys + 15) / 16 * 16;
    pieces->in_order = order == KVPI_IN_ORDER && dense && k->row_bytes + v->row_bytes > 0;
    pieces->lines = pieces->in_order ? lines_of_runs(k, v)
                    : dense          ? MAX_LINES
                                     : lines_of_rows(k, v);
    pieces->head = head;
    pieces->k_stride = k->part->head_stride;
    pieces->v_stride = v->part->head_stride;
    pieces->n_k = cut_ahead(k, n_keys, step, pieces->lines, head * pieces->k_stride, pieces->at);
    pieces->n_v = cut_ahead(v, n_keys, step, pieces->lines, head * pieces->v_stride,
                            pieces->at + pieces->n_k);
    /* Units begin a quarter of a page behind where pages do. */
    pieces->first_unit = order == KVPI_EARLY ? KVPI_UNIT / 4 : KVPI_UNIT;
    pieces->distance = distance_of(pieces, order);
    pieces->n_ahead =
        (pieces->distance + (pieces->in_order ? pieces->lines - 1 : 0)) / pieces->lines;
}

int kvpi_pieces_fit_all_heads(const struct kvpi_pieces *pieces)
{
    return pieces->n_k == 0 || pieces->n_v == 0 || pieces->k_stride == pieces->v_stride;
}

static size_t stride_at(const struct kvpi_pieces *pieces, uint32_t piece)
{
    return piece < pieces->n_k ? pieces->k_stride : pieces->v_stride;
}

/* From the head for which the pieces were made. */
static size_t head_offset(const struct kvpi_pieces *pieces, uint32_t head)
{
    return (head - pieces->head) * stride_at(pieces, 0);
}

void kvpi_pieces_put_next(struct kvpi_pieces *pieces, uint32_t head, const struct kvpi_pieces *next)
{
    const uint32_t n = pieces->n_k + pieces->n_v;
    const struct kvpi_pieces *from = next != NULL ? next : pieces;
    const uint32_t n_from = from->n_k + from->n_v;
    for (uint32_t i = 0; i < pieces->n_ahead; i++) {
        const uint32_t piece = i < n_from ? i : n_from - 1;
        const unsigned char **to = &pieces->at[n + i];
        if (n_from == 0) /* nothing is known: something that is there already */
            *to = n > 0 ? pieces->at[n - 1] : (const unsigned char *)pieces->at;
        else if (next != NULL)
            *to = next->at[piece] - head_offset(pieces, head);
        else
            *to = pieces->at[piece] + stride_at(pieces, piece);
    }
}

static void begin_in_order(const struct kvpi_pieces *pieces, uint32_t head, struct kvpi_ahead *out)
{
    const size_t begin = head_offset(pieces, head);
    *out = (struct kvpi_ahead){.unit = pieces->at + pieces->distance / pieces->lines,
                               .end = pieces->at + pieces->n_k + pieces->n_v + pieces->n_ahead,
                               .at = begin + (size_t)(pieces->distance % pieces->lines) * LINE,
                               .begin = begin,
                               .past = begin + (size_t)pieces->lines * LINE,
                               .in_order = 1};
}

void kvpi_ahead_begin(const struct kvpi_pieces *pieces, uint32_t head, struct kvpi_ahead *out)
{
    if (pieces->in_order) {
        begin_in_order(pieces, head, out);
        return;
    }
    const uint32_t n_own = pieces->n_k + pieces->n_v, n = n_own > 0 ? n_own : pieces->n_ahead;
    const unsigned char *const *first = pieces->at + (n_own > 0 ? pieces->n_ahead : 0);
    out->unit = out->next = first;
    out->end = first + n;
    out->turn = n < pieces->first_unit ? out->end : first + pieces->first_unit;
    out->at = out->begin = n_own > 0 ? head_offset(pieces, head) : 0;
    out->past = out->begin + (size_t)pieces->lines * LINE;
    out->in_order = 0;
}
