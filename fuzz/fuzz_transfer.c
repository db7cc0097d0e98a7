/* Any bytes as messages of a transfer. The first byte chooses the memory: with scales or without,
 * with recurrent state or without. The rest is a stream of pieces: a byte that says what is done
 * with it, a length in two bytes, then so many bytes.
 *
 *   to the receiver, or to the sender: as it is; as the body of a message of the kind that its
 *   first byte says, with a right head; as a right message, or one that is changed in a byte
 *   a ticket: as it is, or the right one, changed in some bytes; read, and marked
 *   calls, with bit 7: a byte for each; either side gives up, closes, leaves the link or asks
 *
 * Nothing may crash; what is not of the transfer does not change; nothing is committed; the cache
 * stays sound; and a transfer that is complete has the sender's KV, unless a message was forged,
 * checksum and all. */
#include <stdlib.h>
#include <string.h>

#include <kvpager/states.h>
#include <kvpager/transfer.h>

#include "transfer/transfer_bytes.h"

#include "require.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define PART ((uint64_t)1 << 32 | 1) /* of the first mark at the first place */

enum { N_TOKENS = 9, N_BLOCKS = 6, N_SLOTS = 5, S = 4, EPOCH = 5, RIGHT_MESSAGES = 16 };

struct side {
    kvp_cache *cache;
    kvp_memory *memories[2]; /* of KV, and of states, or NULL */
    kvp_seq seq;
    kvp_seq other; /* not of the transfer */
    kvp_hash other_kv[2];
};

struct world {
    struct side a;
    struct side b;
    kvp_loopback *loopback;
    kvp_link ends[2];
    kvp_sender *sender;
    kvp_receiver *receiver;
    uint64_t id_a;
    uint64_t id_b;
    uint8_t ticket[512];
    size_t n_ticket;
    /* What a right sender says. */
    uint8_t right[RIGHT_MESSAGES][KVP_LINK_MESSAGE_MIN];
    size_t n_right[RIGHT_MESSAGES];
    uint32_t n_messages;
    int is_forged;
    int is_closed; /* the receiver's */
};

static const int32_t TOKENS[N_TOKENS] = {3, 1, 4, 1, 5, 9, 2, 6, 5};

static void fill_memory(const struct side *s, const kvp_layout *layout, float value)
{
    for (uint32_t l = 0; l < layout->n_layers; l++) {
        kvp_layer layer;
        require(kvp_memory_layer(s->memories[0], l, &layer) == KVP_OK);
        for (int64_t slot = 0; slot < (int64_t)N_BLOCKS * S; slot++) {
            const float kv[2] = {value, value + (float)slot};
            require(kvp_layer_write(&layer, KVP_K, slot, 0, kv) == KVP_OK);
            require(kvp_layer_write(&layer, KVP_V, slot, 0, kv) == KVP_OK);
        }
    }
}

static kvp_hash hash_of(const struct side *s)
{
    const int32_t *row;
    uint32_t n;
    kvp_hash hash;
    require(kvp_seq_row(s->cache, s->other, 0, &row, &n) == KVP_OK && n == 1);
    require(kvp_memory_checksum(s->memories[0], row[0], S, &hash) == KVP_OK);
    return hash;
}

/* The bytes of the slot that a sequence writes; without states, of nothing. */
static kvp_hash hash_of_state(const struct side *s, kvp_seq seq)
{
    kvp_state_info info;
    kvp_hash hash = {{0}};
    if (s->memories[1] == NULL)
        return hash;
    require(kvp_seq_state_get(s->cache, seq, &info) == KVP_OK && info.write_slot != 0);
    require(kvp_memory_checksum(s->memories[1], (int32_t)info.write_slot, 1, &hash) == KVP_OK);
    return hash;
}

/* Two layers with states of 12 bytes, all of one value. */
static void open_states(struct side *s, int value)
{
    kvp_layout layout;
    kvp_layout_init(&layout);
    layout.type = KVP_BYTES;
    layout.n_blocks = N_SLOTS;
    layout.block_tokens = 1;
    layout.n_layers = 2;
    layout.n_heads = 1;
    layout.k.size = 5;
    layout.v.size = 7;
    require(kvp_layout_arrange(&layout, KVP_ORDER_APART_NHD, NULL) == KVP_OK);
    require(kvp_memory_create(&layout, NULL, &s->memories[1]) == KVP_OK);
    for (uint32_t l = 0; l < 2; l++) {
        kvp_layer layer;
        require(kvp_memory_layer(s->memories[1], l, &layer) == KVP_OK);
        for (size_t slot = 0; slot < N_SLOTS; slot++) {
            memset((char *)layer.k.base + slot * layer.k.block_stride, value, layer.k.size);
            memset((char *)layer.v.base + slot * layer.v.block_stride, value, layer.v.size);
        }
    }
}

static void open_side(struct side *s, int flags, float value)
{
    kvp_config config;
    kvp_layout layout;
    kvp_ns ns;
    const int has_scales = flags & 1;
    kvp_config_init(&config);
    config.state_slots = flags & 2 ? N_SLOTS : 0;
    config.block_tokens = S;
    config.n_blocks = N_BLOCKS;
    config.max_seqs = 3;
    config.max_seq_tokens = 32;
    config.max_namespaces = 1;
    kvp_layout_init(&layout);
    layout.type = has_scales ? KVP_INT8 : KVP_F32;
    layout.n_blocks = N_BLOCKS;
    layout.block_tokens = S;
    layout.n_layers = 2;
    layout.n_heads = 1;
    layout.k.size = layout.v.size = 2;
    require(kvp_layout_arrange(&layout, KVP_ORDER_CPU, NULL) == KVP_OK);
    require(!has_scales || kvp_layout_add_scales(&layout, "2NH") == KVP_OK);
    require(kvp_cache_create(&config, NULL, 0, &s->cache) == KVP_OK);
    require(kvp_memory_create(&layout, NULL, &s->memories[0]) == KVP_OK);
    fill_memory(s, &layout, value);
    if ((flags & 2) != 0)
        open_states(s, (int)value);
    kvp_prompt prompt = {.struct_size = sizeof prompt, .tokens = TOKENS + 5, .n_tokens = 4};
    require(kvp_ns_open(s->cache, NULL, 0, &ns) == KVP_OK);
    require(kvp_seq_open(s->cache, ns, &prompt, &s->other, NULL) == KVP_OK);
    prompt.tokens = TOKENS;
    prompt.n_tokens = N_TOKENS;
    require(kvp_seq_open(s->cache, ns, &prompt, &s->seq, NULL) == KVP_OK);
    s->other_kv[0] = hash_of(s);
    s->other_kv[1] = hash_of_state(s, s->other);
}

static void close_side(struct side *s)
{
    kvp_stats stats;
    const kvp_hash now[2] = {hash_of(s), hash_of_state(s, s->other)};
    require(memcmp(now, s->other_kv, sizeof now) == 0);
    require(kvp_seq_close(s->cache, s->seq, NULL) == KVP_OK);
    require(kvp_seq_close(s->cache, s->other, NULL) == KVP_OK);
    require(kvp_cache_check(s->cache, 3, NULL) == KVP_OK);
    require(kvp_cache_stats_get(s->cache, &stats) == KVP_OK && stats.held_blocks == 0);
    kvp_memory_destroy(s->memories[0]);
    kvp_memory_destroy(s->memories[1]);
    kvp_cache_destroy(s->cache);
}

static kvp_transfer_config config_of(const struct side *s)
{
    kvp_transfer_config config;
    kvp_transfer_config_init(&config);
    config.cache = s->cache;
    config.memories = (const kvp_memory *const *)s->memories;
    config.epoch = EPOCH;
    config.max_transfers = 2;
    config.max_links = 1;
    return config;
}

static void mark(struct world *w)
{
    const kvp_send send = {.struct_size = sizeof send,
                           .seq = w->a.seq,
                           .ticket = w->ticket,
                           .ticket_bytes = w->n_ticket,
                           .ready_tokens = KVP_END};
    require(kvp_sender_mark(w->sender, &send, &w->id_a) == KVP_OK);
}

static void put(const kvp_link *end, const uint8_t *bytes, size_t n)
{
    void *buffer;
    if (n == 0 || end->lend(end->context, n, &buffer) != KVP_OK)
        return;
    memcpy(buffer, bytes, n);
    require(end->post(end->context, n) == KVP_OK);
}

/* Everything that the sender says, kept, and none of it given to the receiver. */
static void record(struct world *w)
{
    const void *bytes;
    require(kvp_seq_commit(w->a.cache, w->a.seq, N_TOKENS) == KVP_OK);
    mark(w);
    require(kvp_sender_progress(w->sender, NULL) == KVP_OK);
    while (w->ends[1].take(w->ends[1].context, &bytes, &w->n_right[w->n_messages]) == KVP_OK) {
        memcpy(w->right[w->n_messages], bytes, w->n_right[w->n_messages]);
        w->n_messages++;
        require(w->n_messages < RIGHT_MESSAGES);
        w->ends[1].give_back(w->ends[1].context);
    }
}

static void make_world(struct world *w, int flags)
{
    uint32_t link;
    open_side(&w->a, flags, 1);
    open_side(&w->b, flags, 2);
    const kvp_transfer_config a = config_of(&w->a), b = config_of(&w->b);
    const kvp_receive receive = {.struct_size = sizeof receive, .seq = w->b.seq, .end = KVP_END};
    require(kvp_loopback_create(KVP_LINK_MESSAGE_MIN, 32, &w->loopback, w->ends) == KVP_OK);
    require(kvp_sender_create(&a, &w->sender) == KVP_OK);
    require(kvp_receiver_create(&b, &w->receiver) == KVP_OK);
    require(kvp_sender_attach(w->sender, &w->ends[0], &link) == KVP_OK);
    require(kvp_receiver_attach(w->receiver, &w->ends[1], &link) == KVP_OK);
    require(kvp_receiver_reserve(w->receiver, &receive, w->ticket, sizeof w->ticket, &w->n_ticket,
                                 &w->id_b) == KVP_OK);
    record(w);
}

static void check_kv(const struct world *w)
{
    const int32_t *rows[2];
    uint32_t n;
    require(kvp_seq_row(w->a.cache, w->a.seq, 0, &rows[0], &n) == KVP_OK);
    require(kvp_seq_row(w->b.cache, w->b.seq, 0, &rows[1], &n) == KVP_OK);
    for (uint32_t i = 0; i * S < N_TOKENS; i++) {
        kvp_hash a, b;
        const uint32_t n_tokens = N_TOKENS - i * S < S ? N_TOKENS - i * S : S;
        require(kvp_memory_checksum(w->a.memories[0], rows[0][i], n_tokens, &a) == KVP_OK);
        require(kvp_memory_checksum(w->b.memories[0], rows[1][i], n_tokens, &b) == KVP_OK);
        require(memcmp(&a, &b, sizeof a) == 0);
    }
    const kvp_hash a = hash_of_state(&w->a, w->a.seq), b = hash_of_state(&w->b, w->b.seq);
    require(memcmp(&a, &b, sizeof a) == 0);
}

static void end_world(struct world *w)
{
    kvp_transfer_info info;
    const kvp_status status = kvp_receiver_info_get(w->receiver, w->id_b, &info);
    require(status == (w->is_closed ? KVP_E_HANDLE : KVP_OK));
    if (status == KVP_OK && info.state == KVP_TRANSFER_COMPLETE && !w->is_forged)
        check_kv(w);
    kvp_sender_destroy(w->sender);
    kvp_receiver_destroy(w->receiver);
    kvp_loopback_destroy(w->loopback);
    close_side(&w->a);
    close_side(&w->b);
}

/* After every piece. */
static void check(const struct world *w)
{
    kvp_seq_info info;
    require(kvp_seq_info_get(w->b.cache, w->b.seq, &info) == KVP_OK);
    require(info.computed_tokens == 0 && info.n_tokens == N_TOKENS);
    require(kvp_seq_info_get(w->a.cache, w->a.seq, &info) == KVP_OK);
    require(info.computed_tokens == N_TOKENS);
}

static void read_ticket(struct world *w, const uint8_t *bytes, size_t n)
{
    kvp_ticket ticket;
    kvp_slot_run runs[8];
    uint64_t id;
    const kvp_send send = {.struct_size = sizeof send,
                           .seq = w->a.seq,
                           .ticket = bytes,
                           .ticket_bytes = n,
                           .ready_tokens = KVP_END};
    if (kvp_ticket_read(bytes, n, &ticket, runs, 8) == KVP_OK) {
        uint64_t n_tokens = 0;
        for (uint32_t i = 0; i < ticket.n_runs; i++) {
            require(runs[i].slot >= 0 && runs[i].n_tokens > 0);
            n_tokens += runs[i].n_tokens;
        }
        const uint32_t n_gap = ticket.gap.end - ticket.gap.begin;
        require(ticket.begin < ticket.end && n_tokens == ticket.end - ticket.begin - n_gap);
    }
    if (kvp_sender_mark(w->sender, &send, &id) == KVP_OK) {
        require(kvp_sender_progress(w->sender, NULL) == KVP_OK);
        (void)kvp_sender_abort(w->sender, id, KVP_E_PEER);
        require(kvp_sender_close(w->sender, id) == KVP_OK);
    }
}

/* A message with a body of any bytes, or a right one that is changed in a byte. */
static size_t wrap(struct world *w, const uint8_t *bytes, size_t n, uint8_t *out)
{
    if (n > KVP_LINK_MESSAGE_MIN - KVPI_TRANSFER_HEAD_BYTES)
        n = KVP_LINK_MESSAGE_MIN - KVPI_TRANSFER_HEAD_BYTES;
    if (n > 1)
        memcpy(out + KVPI_TRANSFER_HEAD_BYTES, bytes + 1, n - 1);
    n = KVPI_TRANSFER_HEAD_BYTES + (n > 0 ? n - 1 : 0);
    w->is_forged = 1;
    kvpi_transfer_seal(out, n,
                       &(struct kvpi_transfer_head){
                           .kind = bytes[0] % 8, .part = PART, .epoch = EPOCH, .id = w->id_b});
    return n;
}

static size_t change(struct world *w, const uint8_t *bytes, size_t n, uint8_t *out)
{
    const uint32_t which = bytes[0] % w->n_messages;
    const size_t length = w->n_right[which];
    memcpy(out, w->right[which], length);
    if (n < 4)
        return length; /* as it is */
    const size_t at = (size_t)kvpi_bytes_load(bytes + 1, 2) % length;
    out[at] ^= bytes[3];
    if (n > 4 && at >= KVPI_TRANSFER_HEAD_BYTES) { /* the body's checksum is made right */
        kvpi_transfer_seal(
            out, length,
            &(struct kvpi_transfer_head){.kind = w->right[which][KVPI_TRANSFER_AT_KIND],
                                         .part = PART,
                                         .epoch = EPOCH,
                                         .id = w->id_b});
        w->is_forged = 1;
    }
    return length;
}

/* Pairs of place and byte, in the body of the right ticket. */
static size_t change_ticket(const struct world *w, const uint8_t *bytes, size_t n, uint8_t *out)
{
    const size_t room = w->n_ticket - KVPI_TRANSFER_HEAD_BYTES;
    memcpy(out, w->ticket, w->n_ticket);
    for (size_t i = 0; i + 1 < n; i += 2)
        out[KVPI_TRANSFER_HEAD_BYTES + bytes[i] % room] = bytes[i + 1];
    kvpi_transfer_seal(
        out, w->n_ticket,
        &(struct kvpi_transfer_head){
            .kind = KVPI_TRANSFER_TICKET, .part = PART, .epoch = EPOCH, .id = w->id_b});
    return w->n_ticket;
}

static void ask(const struct world *w)
{
    kvp_receiver_stats stats;
    kvp_transfer_info info;
    (void)kvp_sender_info_get(w->sender, w->id_a, &info);
    (void)kvp_sender_link(w->sender, 0);
    (void)kvp_receiver_link(w->receiver, 0);
    require(kvp_receiver_stats_get(w->receiver, &stats) == KVP_OK);
    require(stats.damaged + stats.late <= stats.messages);
}

static void call(struct world *w, const uint8_t *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        switch (bytes[i] % 8) {
        case 0: (void)kvp_receiver_abort(w->receiver, w->id_b, KVP_E_IO); break;
        case 1: w->is_closed |= kvp_receiver_close(w->receiver, w->id_b) == KVP_OK; break;
        case 2: (void)kvp_receiver_detach(w->receiver, bytes[i] >> 7); break;
        case 3: (void)kvp_sender_detach(w->sender, bytes[i] >> 7); break;
        case 4: (void)kvp_sender_abort(w->sender, w->id_a, KVP_E_IO); break;
        case 5: (void)kvp_sender_close(w->sender, w->id_a); break;
        case 6: (void)kvp_sender_ready(w->sender, w->id_a, bytes[i] >> 3 & 3, bytes[i] >> 5); break;
        default: bytes[i] < 0xF0 ? ask(w) : kvp_loopback_cut(w->loopback); break;
        }
    }
    require(kvp_sender_progress(w->sender, NULL) == KVP_OK);
    require(kvp_receiver_progress(w->receiver, 0, NULL) == KVP_OK);
    check(w);
}

static void give(struct world *w, uint8_t how, const uint8_t *bytes, size_t n)
{
    uint8_t message[2 * KVP_LINK_MESSAGE_MIN];
    const kvp_link *end = &w->ends[how & 1];
    if (n == 0)
        return;
    if ((how & 0x80) != 0) {
        call(w, bytes, n);
        return;
    }
    switch (how >> 1 & 3) {
    case 0:
        put(end, bytes, n);
        w->is_forged = 1;
        break;
    case 1: put(end, message, wrap(w, bytes, n, message)); break;
    case 2: put(end, message, change(w, bytes, n, message)); break;
    default:
        if ((how & 8) != 0)
            n = change_ticket(w, bytes, n, message);
        read_ticket(w, (how & 8) != 0 ? message : bytes, n);
        break;
    }
    if ((how & 1) == 0)
        require(kvp_receiver_progress(w->receiver, 0, NULL) == KVP_OK);
    else
        require(kvp_sender_progress(w->sender, NULL) == KVP_OK);
    check(w);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct world w;
    if (size == 0)
        return 0;
    memset(&w, 0, sizeof w);
    make_world(&w, data[0] & 3);
    for (size_t at = 1; size - at >= 3;) {
        const uint8_t how = data[at];
        size_t n = (size_t)kvpi_bytes_load(data + at + 1, 2) % KVP_LINK_MESSAGE_MIN;
        at += 3;
        n = n > size - at ? size - at : n;
        uint8_t *exact = malloc(n ? n : 1); /* so that a read behind its end is found */
        require(exact != NULL);
        memcpy(exact, data + at, n);
        give(&w, how, exact, n);
        free(exact);
        at += n;
    }
    end_world(&w);
    return 0;
}
