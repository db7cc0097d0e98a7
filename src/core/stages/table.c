/* table: see table.h for what a sequence is made of.
 *
 * Rows are as long as the longest sequence may get, one for each place: O(1) access, rows that are
 * plain arrays, no way to run out. Memory that is not touched costs nothing when the library maps
 * the arena, and places are reused last closed first, so what few long sequences touched serves
 * again.
 */
#include "core/stages/table.h"

#include <string.h>

/* Entries from a row to the next. Sequences that grow together use the same place of each row:
 * where rows lie a power of two apart, all these places fall into a few sets of the processor's
 * caches. So long rows lie an odd number of lines apart. */
static uint32_t stride_of(uint32_t n_entries)
{
    enum { LINE_ENTRIES = 16, LONG = 8 * LINE_ENTRIES };
    return n_entries < LONG ? n_entries
                            : ((n_entries + LINE_ENTRIES - 1) / LINE_ENTRIES | 1u) * LINE_ENTRIES;
}

void kvpi_table_layout(struct kvpi_table *table, struct kvpi_layout *layout, size_t self)
{
    const uint64_t n = (uint64_t)table->max_seqs + 1;
    uint64_t wide = 0;
    table->seqs_at = kvpi_layout_take(layout, n, sizeof(struct kvpi_seq)) - self;
    table->free_at = kvpi_layout_take(layout, table->max_seqs, sizeof(uint32_t)) - self;
    /* n is at most 2^20 + 1 and each row at most 2^31 entries: no product overflows 64 bits. */
    table->block_stride = stride_of(table->max_blocks);
    table->node_stride = stride_of(table->max_units);
    wide = n * table->block_stride; /* times 8 at most */
    wide *= table->n_groups;
    table->blocks_at = kvpi_layout_take(layout, wide, sizeof(int32_t)) - self;
    wide = n * table->node_stride;
    table->nodes_at = kvpi_layout_take(layout, wide, sizeof(uint32_t)) - self;
    wide = n * table->unit_tokens;
    table->partial_at = kvpi_layout_take(layout, wide, sizeof(int32_t)) - self;
    wide = n * table->max_unit_keys;
    table->keys_at = kvpi_layout_take(layout, wide, sizeof(struct kvpi_key)) - self;
    wide = n * table->n_groups;
    table->windows_at = kvpi_layout_take(layout, wide, sizeof(struct kvpi_window)) - self;
    wide = n * 2 * table->max_tree;
    table->trees_at = kvpi_layout_take(layout, wide, sizeof(int32_t)) - self;
    wide = table->retains ? table->max_seqs : 0;
    table->parted_at = kvpi_layout_take(layout, wide, sizeof(uint32_t)) - self;
    table->place_bits = kvpi_handle_place_bits(table->max_seqs);
}

static const struct kvpi_seq none = {.uncached_from = UINT32_MAX, .last = KVPI_NO_TOKEN};

_Static_assert(sizeof(struct kvpi_seq) % sizeof(kvpi_long_word) == 0, "stored as long words");

/* Make `seq` what `from` is, except its generation, which comes first. */
static inline void copy_counts(struct kvpi_seq *seq, const struct kvpi_seq *from)
{
    const size_t at = sizeof(seq->generation);
    kvpi_store_long_words((char *)seq + at, (const char *)from + at, sizeof(*seq) - at);
}

void kvpi_table_reset(struct kvpi_table *table, int fresh)
{
    uint32_t *stack = kvpi_at(table, table->free_at);
    table->n_free = 0;
    for (uint32_t i = 0; i < table->max_seqs; i++) {
        const uint32_t place = table->max_seqs - 1 - i;
        struct kvpi_seq *seq = kvpi_seq_at(table, place);
        const uint64_t generation = fresh ? 0 : seq->generation + (seq->generation & 1);
        copy_counts(seq, &none);
        kvpi_set(&seq->generation, generation);
        if (generation < kvpi_handle_last_generation(table->place_bits)) {
            stack[table->n_free++] = place;
        }
    }
    memset(kvpi_seq_at(table, kvpi_table_scratch(table)), 0, sizeof(struct kvpi_seq));
    memset(kvpi_windows(table, 0), 0,
           ((size_t)table->max_seqs + 1) * table->n_groups * sizeof(struct kvpi_window));
    memset(kvpi_at(table, table->parted_at), 0,
           table->retains ? table->max_seqs * sizeof(uint32_t) : 0);
    kvpi_set(&table->n_open, 0);
}

int64_t kvpi_table_next(const struct kvpi_table *table)
{
    const uint32_t *stack = kvpi_at(table, table->free_at);
    return table->n_free == 0 ? -1 : (int64_t)stack[table->n_free - 1];
}

struct kvpi_seq *kvpi_table_fork(struct kvpi_table *table, const struct kvpi_seq *from)
{
    const uint32_t *stack = kvpi_at(table, table->free_at);
    if (table->n_free == 0) {
        return NULL;
    }
    struct kvpi_seq *seq = kvpi_seq_at(table, stack[--table->n_free]);
    copy_counts(seq, from);
    kvpi_set(&seq->generation, seq->generation + 1);
    kvpi_count(&table->n_open, 1);
    return seq;
}

struct kvpi_seq *kvpi_table_open(struct kvpi_table *table)
{
    return kvpi_table_fork(table, &none);
}

void kvpi_table_close(struct kvpi_table *table, struct kvpi_seq *seq)
{
    uint32_t *stack = kvpi_at(table, table->free_at);
    kvpi_set(&seq->generation, seq->generation + 1);
    if (seq->generation < kvpi_handle_last_generation(table->place_bits)) {
        stack[table->n_free++] = kvpi_seq_place(table, seq);
    }
    kvpi_uncount(&table->n_open, 1);
}

kvp_seq kvpi_table_handle(const struct kvpi_table *table, const struct kvpi_seq *seq,
                          uint64_t cache_bits)
{
    return (kvp_seq){kvpi_handle_make(cache_bits, seq->generation, kvpi_seq_place(table, seq),
                                      table->place_bits)};
}

uint32_t kvpi_handle_place_bits(uint32_t n)
{
    uint32_t bits = 1;
    while (((uint64_t)1 << bits) < n) {
        bits++;
    }
    return bits;
}

uint64_t kvpi_handle_last_generation(uint32_t place_bits)
{
    return (((uint64_t)1 << (KVPI_HANDLE_CACHE_SHIFT - place_bits)) - 1) & ~(uint64_t)1;
}

uint64_t kvpi_handle_make(uint64_t cache_bits, uint64_t generation, uint32_t place,
                          uint32_t place_bits)
{
    return cache_bits | generation << place_bits | place;
}
