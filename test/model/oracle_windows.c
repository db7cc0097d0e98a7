/* Windows: what is kept, dropped, and needed; a sequence's own window.
 *
 * An entry of a row is null when its group has dropped it. A sequence lacks something when an entry
 * is null that is kept for its next query: an invalidation or a failed step has taken it back to
 * where it would see those tokens again.
 */
#include "oracle_parts.h"

#include <stdlib.h>
#include <string.h>

/* Entries of all groups, as many as each has, in the order of their first tokens, those of one
 * token in the order of the groups. The caller frees them. */
oracle_entry *oracle_order(const oracle *o, const uint32_t *n_entries, uint32_t *out_n)
{
    uint32_t n = 0, all = 0;
    oracle_entry *order;

    for (uint32_t k = 0; k < o->config.n_groups; k++)
        all += n_entries[k];
    order = oracle_allocate(all, sizeof *order);
    for (uint32_t t = 0; n < all; t += o->unit) {
        for (uint32_t k = 0; k < o->config.n_groups; k++) {
            uint32_t S = oracle_size(o, k);

            if (t % S == 0 && t / S < n_entries[k])
                order[n++] = (oracle_entry){k, t / S};
        }
    }
    *out_n = n;
    return order;
}

static bool is_full(kvp_window window)
{
    return !window.sink_tokens && !window.recent_tokens;
}

/* One group without a window: hits are those of cache.h. */
bool oracle_is_plain(const oracle *o)
{
    return o->config.n_groups == 1 && is_full(oracle_window_of(o, 0));
}

static bool is_chunked(kvp_window window)
{
    return window.sink_tokens == KVP_CHUNKED;
}

/* Is entry i kept when the next query is at this position? Of a chunk, what has a token in it or
 * lies behind its begin. */
bool oracle_keeps(const oracle *o, uint32_t group, kvp_window window, uint32_t entry,
                  uint64_t query)
{
    uint64_t begin = (uint64_t)entry * oracle_size(o, group), end = begin + oracle_size(o, group);

    if (is_chunked(window))
        return (end - 1) / window.recent_tokens >= query / window.recent_tokens;
    return is_full(window) || begin < window.sink_tokens || end + window.recent_tokens > query + 1;
}

/* Is an entry of the first tokens null, and kept at this position? */
bool oracle_lacks_at(const oracle *o, const oracle_seq *seq, uint32_t n_tokens, uint64_t query)
{
    for (uint32_t k = 0; k < o->config.n_groups; k++) {
        for (uint32_t i = 0; i < oracle_ceil(n_tokens, oracle_size(o, k)) && i < seq->n_row[k]; i++)
            if (!seq->rows[k][i] && oracle_keeps(o, k, seq->windows[k], i, query))
                return true;
    }
    return false;
}

bool oracle_lacks(const oracle *o, const oracle_seq *seq)
{
    return seq->lost || oracle_lacks_at(o, seq, UINT32_MAX, seq->computed);
}

/* Entries of all rows that are not null. */
uint32_t oracle_n_blocks(const oracle *o, const oracle_seq *seq)
{
    uint32_t n = 0;

    for (uint32_t k = 0; k < o->config.n_groups; k++)
        for (uint32_t i = 0; i < seq->n_row[k]; i++)
            n += seq->rows[k][i] != 0;
    return n;
}

static bool is_place(oracle *o, const oracle_seq *seq, uint32_t place)
{
    const uint32_t n = seq->prompt, N = o->config.retain_tokens;
    const bool multiple = N != KVP_RETAIN_PROMPTS && place % N == 0;
    const bool end = place == n / o->unit * o->unit;
    const bool before = n && place == (n - 1) / o->unit * o->unit;
    const bool hit = place == seq->cached / o->unit * o->unit;
    const bool parted = place == seq->parted;

    o->marks.retained_multiple += multiple;
    o->marks.retained_end += end && !multiple && !before && !parted;
    o->marks.retained_before += before && !multiple && !end && !parted;
    o->marks.retained_hit += hit && !multiple && !end && !before && !parted;
    o->marks.retained_parted += parted && !multiple && !end && !before && !hit;
    return multiple || end || before || hit || parted;
}

/* Does a retained place need the entry's block: does a hit that ends there see a token of it? What
 * the configured windows keep of each sequence is needed wherever a hit ends. */
bool oracle_is_retained(oracle *o, const oracle_seq *seq, uint32_t group, uint32_t i)
{
    const kvp_window window = oracle_window_of(o, group);
    const uint64_t begin = (uint64_t)i * oracle_size(o, group);

    if (is_full(window) || (!is_chunked(window) && begin < window.sink_tokens))
        return true;
    for (uint64_t place = begin / o->unit * o->unit + o->unit;
         place <= o->config.max_seq_tokens && oracle_keeps(o, group, window, i, place);
         place += o->unit)
        if (is_place(o, seq, (uint32_t)place))
            return true;
    return false;
}

/* A block that no retained place needs was left: it goes before all others, if it is cached. */
static void put_ahead(oracle *o, int32_t block)
{
    oracle_block *b = &o->blocks[block];

    b->spare = !b->refs && oracle_block_sealed(o, block);
    o->marks.spare += b->spare;
    o->marks.spare_of_class += b->spare && b->retention;
    if (b->spare && !b->parked_for)
        oracle_move_ahead(o, block, 0);
}

static void drop_entry(oracle *o, oracle_seq *seq, uint32_t group, uint32_t i,
                       kvp_released *released)
{
    int32_t block = seq->rows[group][i];
    uint32_t parked = o->n_parked;
    bool shared = o->blocks[block].refs > 1;

    seq->rows[group][i] = 0;
    seq->row_changed = true;
    oracle_leave(o, seq, block, released);
    if (o->config.retain_tokens) {
        bool retained = oracle_is_retained(o, seq, group, i);

        o->marks.retained += retained;
        if (!retained)
            put_ahead(o, block);
    }
    o->stats.dropped_blocks++;
    o->marks.dropped_shared += shared;
    o->marks.dropped_parked += o->n_parked > parked;
    o->marks.dropped_free += !shared && !oracle_block_sealed(o, block);
}

/* Has the group dropped an entry behind this one, which is no sink? Then none of its queries can
 * see this one: a chunk that the window keeps in part is of no use. */
static bool is_cut_off(const oracle *o, const oracle_seq *seq, uint32_t group, uint32_t i)
{
    const kvp_window window = seq->windows[group];

    if (is_full(window) ||
        (!is_chunked(window) && (uint64_t)i * oracle_size(o, group) < window.sink_tokens))
        return false;
    for (uint32_t behind = i + 1; behind < seq->n_row[group]; behind++)
        if (!seq->rows[group][behind])
            return true;
    return false;
}

/* Drop what is not kept when the next query is at this position, the last entry first. Gives how
 * many. */
uint32_t oracle_windows_drop(oracle *o, oracle_seq *seq, uint32_t query, kvp_released *released)
{
    uint32_t n_all, n = 0;
    oracle_entry *order = oracle_order(o, seq->n_row, &n_all);

    for (uint32_t at = n_all; at-- > 0;) {
        uint32_t group = order[at].group, i = order[at].i;

        if (!seq->rows[group][i] || (oracle_keeps(o, group, seq->windows[group], i, query) &&
                                     !is_cut_off(o, seq, group, i)))
            continue;
        drop_entry(o, seq, group, i, released);
        n++;
    }
    free(order);
    return n;
}

/* The first position that does not see all tokens. */
static uint64_t window_end(kvp_window window)
{
    if (is_chunked(window))
        return window.recent_tokens;
    return is_full(window) ? UINT64_MAX : (uint64_t)window.sink_tokens + window.recent_tokens;
}

/* What is computed from here on with a window of its own may be KV that others do not have:
 * computed tokens were cut, or a window was set. */
void oracle_windows_cut(const oracle *o, oracle_seq *seq)
{
    for (uint32_t k = 0; k < o->config.n_groups; k++) {
        kvp_window theirs = oracle_window_of(o, k), own = seq->windows[k];
        uint64_t first =
            window_end(theirs) < window_end(own) ? window_end(theirs) : window_end(own);

        if (theirs.sink_tokens == own.sink_tokens && theirs.recent_tokens == own.recent_tokens)
            continue;
        first = first > seq->computed ? first : seq->computed;
        seq->private_from = first < seq->private_from ? first : seq->private_from;
    }
}

/* Would the window keep an entry that was dropped? */
static bool keeps_dropped(const oracle *o, const oracle_seq *seq, uint32_t group, kvp_window window)
{
    for (uint32_t i = 0; i < seq->n_row[group]; i++)
        if (!seq->rows[group][i] && oracle_keeps(o, group, window, i, seq->computed))
            return true;
    return false;
}

kvp_status oracle_window(oracle *o, const kvp_call *call, kvp_outcome *out)
{
    uint32_t place = oracle_find_seq(o, call->handle), public_units, query;
    oracle_seq *seq;
    bool lacked;

    if (place == ORACLE_NONE)
        return oracle_fail(o, KVP_E_HANDLE, 0, 0);
    seq = &o->seqs[place];
    if (call->group >= o->config.n_groups ||
        (call->window.sink_tokens && !call->window.recent_tokens))
        return oracle_fail(o, KVP_E_ARG, 0, 0);
    if (oracle_is_out(seq))
        return oracle_fail(o, KVP_E_STATE, 0, 0);
    if (keeps_dropped(o, seq, call->group, call->window))
        return oracle_fail(o, KVP_E_DROPPED, 0, 0);
    oracle_begin_change(o);
    lacked = oracle_lacks(o, seq);
    public_units = oracle_public_units(o, seq);
    seq->windows[call->group] = call->window;
    /* The last token of a prompt that was hit whole is run again. */
    query = seq->tokens ? oracle_lower(seq->computed, seq->tokens - 1) : 0;
    oracle_windows_drop(o, seq, query, &out->u.released);
    oracle_windows_cut(o, seq);
    o->marks.lacking_healed += lacked && !oracle_lacks(o, seq);
    o->marks.window_private += oracle_public_units(o, seq) < public_units;
    return KVP_OK;
}

kvp_status oracle_window_get(oracle *o, const oracle_seq *seq, const kvp_call *call,
                             kvp_outcome *out)
{
    kvp_window_info *info = &out->u.window;

    if (call->group >= o->config.n_groups)
        return KVP_E_ARG;
    info->window = seq->windows[call->group];
    for (uint32_t i = seq->n_row[call->group]; i-- > 0;) {
        if (seq->rows[call->group][i])
            continue;
        info->dropped_begin = i;
        info->dropped_end = info->dropped_end ? info->dropped_end : i + 1;
    }
    return KVP_OK;
}
