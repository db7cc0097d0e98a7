/* ahead: see ahead.h. */
#include "attention/ahead.h"

enum { LINE = 64, MAX_LINES = 4, DISTANCE = 80 /* lines */ };

/* Pieces that follow each other. */
struct run {
    const unsigned char *const *pieces;
    uint32_t n;
    size_t offset;
};

uint64_t kvpi_pieces_max(uint32_t k_row_bytes, uint32_t v_row_bytes)
{
    const uint64_t n = (uint64_t)KVPI_TILE * ((k_row_bytes + v_row_bytes) / LINE);
    return n > 4 ? n : 4;
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

/* Each `step` rows are cut as if they were one. */
static uint32_t cut_rows(const struct kvpi_cut *cut, uint32_t n_keys, uint32_t step, uint32_t lines,
                         const unsigned char **out)
{
    const uint32_t n_bytes = step * cut->row_bytes;
    uint32_t n = 0;
    for (uint32_t i = 0; i < n_keys; i += step) {
        for (uint32_t at = 0; at < n_bytes; at += lines * LINE)
            out[n++] = cut->rows[i] + at;
    }
    return n;
}

void kvpi_pieces_make(struct kvpi_pieces *pieces, const struct kvpi_places *places,
                      const struct kvpi_cut *k, const struct kvpi_cut *v)
{
    const int dense = is_dense(places, k) && is_dense(places, v);
    const uint32_t step = dense ? 16 : 1, n_keys = (places->n_keys + 15) / 16 * 16;
    pieces->lines = dense ? MAX_LINES : lines_of_rows(k, v);
    pieces->n_k = cut_rows(k, n_keys, step, pieces->lines, pieces->at);
    pieces->n_v = cut_rows(v, n_keys, step, pieces->lines, pieces->at + pieces->n_k);
    pieces->k_stride = k->part->head_stride;
    pieces->v_stride = v->part->head_stride;
}

static uint32_t n_listed(const struct kvpi_pieces *pieces)
{
    const uint32_t n = pieces->n_k + pieces->n_v;
    return n > 4 ? n : 4;
}

void kvpi_ahead_list_make(struct kvpi_ahead_list *list, const struct kvpi_pieces *now,
                          uint32_t head, const struct kvpi_pieces *next, uint32_t next_head)
{
    const struct run runs[] = {{now->at, now->n_k, head * now->k_stride},
                               {now->at + now->n_k, now->n_v, head * now->v_stride},
                               {next->at, next->n_k, next_head * next->k_stride},
                               {next->at + next->n_k, next->n_v, next_head * next->v_stride}};
    const uint32_t n = n_listed(now);
    uint32_t skip = DISTANCE / now->lines, done = 0;
    for (uint32_t i = 0; i < 4; i++) {
        const struct run *run = &runs[i];
        const uint32_t first = skip < run->n ? skip : run->n;
        const uint32_t left = run->n - first, count = left < n - done ? left : n - done;
        for (uint32_t j = 0; j < count; j++)
            list->at[done + j] = run->pieces[first + j] + run->offset;
        done += count;
        skip -= first;
    }
    /* Nothing more is known: something that is there already. */
    for (; done < n; done++)
        list->at[done] = done > 0 ? list->at[done - 1] : (const unsigned char *)list->at;
    list->head = head;
}

int kvpi_ahead_list_serves_all(const struct kvpi_pieces *now)
{
    return now->n_k == 0 || now->n_v == 0 || now->k_stride == now->v_stride;
}

struct kvpi_ahead kvpi_ahead_begin(const struct kvpi_ahead_list *list,
                                   const struct kvpi_pieces *now, uint32_t head)
{
    const uint32_t n = n_listed(now);
    const size_t stride = now->n_k > 0 ? now->k_stride : now->v_stride;
    const size_t begin = (head - list->head) * stride;
    return (struct kvpi_ahead){.unit = list->at,
                               .next = list->at,
                               .turn = list->at + (n < KVPI_UNIT ? n : KVPI_UNIT),
                               .end = list->at + n,
                               .at = begin,
                               .begin = begin,
                               .past = begin + (size_t)now->lines * LINE};
}
