/* transfer_world: see the header. KV is written and read through kvp_layer_write and _read, which
 * know of strides and types but nothing of transfers. */
#define _POSIX_C_SOURCE 200809L /* sockets */

#include "transfer_world.h"

#include "tcp_pair.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#ifndef _WIN32
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>
#endif

/* --------------------------------------------------------------------------------------- places */

place_shape small_place(void)
{
    return (place_shape){.order = KVP_ORDER_VLLM_NHD,
                         .type = KVP_F32,
                         .S = 4,
                         .usable = 16,
                         .slice = {0, 2, 0, 2},
                         .k_size = 4,
                         .v_size = 4};
}

uint32_t place_block_tokens(const place_shape *shape, uint32_t group)
{
    return shape->sizes[group] > 0 ? shape->sizes[group] : shape->S;
}

uint32_t place_unit_tokens(const place_shape *shape)
{
    uint32_t U = shape->S;
    for (uint32_t g = 0; g < shape->n_groups; g++) {
        const uint32_t S = place_block_tokens(shape, g);
        U = S < U ? S : U;
    }
    return U;
}

static kvp_memory *make_memory(const kvp_layout *layout)
{
    kvp_memory *memory;
    kvp_memory_options options;
    kvp_memory_options_init(&options);
    options.pages = KVP_PAGES_SMALL;
    assert_ok(kvp_memory_create(layout, &options, &memory));
    return memory;
}

static kvp_layout layout_of(const place_shape *shape, uint32_t group)
{
    kvp_layout layout;
    kvp_layout_init(&layout);
    layout.type = shape->type;
    layout.n_blocks = shape->usable + 1;
    layout.block_tokens = place_block_tokens(shape, group);
    layout.n_layers = shape->slice.n_layers;
    layout.n_heads = shape->slice.n_heads;
    layout.first_layer = shape->slice.first_layer;
    layout.first_head = shape->slice.first_head;
    layout.k.size = shape->k_size + group * shape->more;
    layout.v.size = shape->v_size;
    assert_ok(kvp_layout_arrange(&layout, shape->order, NULL));
    if (shape->has_scales)
        assert_ok(kvp_layout_add_scales(&layout, "2NH"));
    return layout;
}

static kvp_layout state_layout_of(const place_shape *shape)
{
    kvp_layout layout;
    kvp_layout_init(&layout);
    layout.type = KVP_BYTES;
    layout.n_blocks = shape->state_slots;
    layout.block_tokens = 1;
    layout.n_layers = shape->slice.n_layers;
    layout.n_heads = shape->slice.n_heads;
    layout.first_layer = shape->slice.first_layer;
    layout.first_head = shape->slice.first_head;
    layout.k.size = shape->state_k;
    layout.v.size = shape->state_v;
    assert_ok(kvp_layout_arrange(&layout, shape->state_order, NULL));
    return layout;
}

place make_place(const place_shape *shape)
{
    kvp_config config = config_of(shape->S, place_unit_tokens(shape), shape->usable);
    place p = {.n_groups = shape->n_groups > 0 ? shape->n_groups : 1};
    config.n_groups = p.n_groups;
    for (uint32_t g = 0; g < p.n_groups; g++) {
        config.groups[g] = (kvp_group){shape->windows[g].sink_tokens,
                                       shape->windows[g].recent_tokens, shape->sizes[g]};
        p.layouts[g] = layout_of(shape, g);
        p.memories[g] = make_memory(&p.layouts[g]);
        p.before[g] = make_memory(&p.layouts[g]);
    }
    p.layout = p.layouts[0];
    p.has_states = shape->state_slots > 0;
    config.state_slots = shape->state_slots;
    config.steps = shape->steps;
    config.n_nodes = shape->n_nodes;
    config.host_blocks = shape->host_blocks;
    config.max_tree_tokens = shape->tree_tokens;
    if (p.has_states) {
        p.layouts[p.n_groups] = state_layout_of(shape);
        p.memories[p.n_groups] = make_memory(&p.layouts[p.n_groups]);
    }
    p.w = make_world(&config);
    return p;
}

void end_place(place *p)
{
    const kvp_stats stats = stats_of(&p->w);
    assert_fields(stats, held_blocks, 0, open_seqs, 0);
    assert_int_equal(stats.free_blocks + stats.cached_blocks, stats.usable_blocks);
    for (uint32_t g = 0; g < p->n_groups; g++) {
        kvp_memory_destroy(p->memories[g]);
        kvp_memory_destroy(p->before[g]);
    }
    kvp_memory_destroy(p->memories[p->n_groups]);
    end_world(&p->w);
}

kvp_transfer_config transfer_config_of(place *p)
{
    kvp_transfer_config config;
    kvp_transfer_config_init(&config);
    config.cache = p->w.cache;
    const int is_one = p->n_groups == 1 && !p->has_states;
    config.memory = is_one ? p->memories[0] : NULL;
    config.memories = is_one ? NULL : (const kvp_memory *const *)p->memories;
    config.model = "test";
    config.model_bytes = 4;
    config.model_version = 3;
    config.max_transfers = 3;
    config.max_links = 3;
    config.epoch = 77;
    return config;
}

/* Small whole numbers: every type but E4M3 and INT8 has them exactly, and those round them. */
static float value_of(uint32_t position, uint32_t layer, uint32_t head, uint32_t which, uint32_t e)
{
    uint32_t mixed = position * 2654435761u ^ layer * 40503u ^ head * 9973u ^ which * 131u ^ e;
    mixed = (mixed ^ mixed >> 15) * 2246822519u;
    return (float)(1 + (mixed >> 8) % 120);
}

/* A layer of a group. */
typedef struct layer_at {
    uint32_t group;
    uint32_t l; /* of the memory */
} layer_at;

/* The slot of a token in a group; 0, which no token has: its window has dropped it. */
static int64_t slot_of(const place *p, kvp_seq seq, uint32_t group, uint32_t position)
{
    const uint32_t S = p->layouts[group].block_tokens;
    const int32_t *row;
    uint32_t n;
    assert_ok(kvp_seq_row(p->w.cache, seq, group, &row, &n));
    assert_true(position / S < n);
    return row[position / S] == 0 ? 0 : (int64_t)row[position / S] * S + position % S;
}

/* One token of one layer, all heads; 0: it is not what it should be. */
static int each_token(const place *p, kvp_seq seq, uint32_t position, layer_at at, int write)
{
    kvp_layer layer;
    float values[64], found[64];
    const int64_t slot = slot_of(p, seq, at.group, position);
    const uint32_t number = at.group << 12 | (p->layout.first_layer + at.l);
    assert_ok(kvp_memory_layer(p->memories[at.group], at.l, &layer));
    for (uint32_t i = 0; slot != 0 && i < 2 * layer.n_heads; i++) {
        const uint32_t which = i % 2, size = which == KVP_K ? layer.k.size : layer.v.size;
        for (uint32_t e = 0; e < size; e++)
            values[e] = value_of(position, number, p->layout.first_head + i / 2, which, e);
        if (size > 0 && write) {
            assert_ok(kvp_layer_write(&layer, (int)which, slot, i / 2, values));
        } else if (size > 0) {
            assert_ok(kvp_layer_read(&layer, (int)which, slot, i / 2, found));
            /* Elements with scales are off by their roundings. */
            for (uint32_t e = 0; e < size; e++)
                if (layer.k.scales ? fabsf(found[e] - values[e]) > 12 : found[e] != values[e])
                    return 0;
        }
    }
    return 1;
}

void write_kv(place *p, kvp_seq seq, kvp_range range, uint32_t layer)
{
    for (uint32_t i = 0; i < p->n_groups * p->layout.n_layers; i++) {
        const layer_at at = {i / p->layout.n_layers, i % p->layout.n_layers};
        for (uint32_t t = range.begin; t < range.end; t++)
            if (layer == at.l || layer == KVP_LAYERS_ALL)
                (void)each_token(p, seq, t, at, 1);
    }
}

int has_kv(const place *p, kvp_seq seq, kvp_range range)
{
    for (uint32_t i = 0; i < p->n_groups * p->layout.n_layers; i++) {
        const layer_at at = {i / p->layout.n_layers, i % p->layout.n_layers};
        for (uint32_t t = range.begin; t < range.end; t++)
            if (!each_token(p, seq, t, at, 0))
                return 0;
    }
    return 1;
}

static unsigned char byte_of(uint32_t n_tokens, uint32_t layer, uint32_t head, uint32_t e)
{
    const uint32_t mixed =
        (n_tokens * 2654435761u ^ layer * 40503u ^ head * 9973u ^ e) * 2246822519u;
    return (unsigned char)(mixed >> 13 ^ mixed >> 24);
}

/* Each byte of a slot; 0: one is not what it should be. K's come before V's. */
static int each_byte(const place *p, uint32_t slot, uint32_t n_tokens, int write)
{
    const kvp_layout *layout = &p->layouts[p->n_groups];
    const uint32_t n = layout->k.size + layout->v.size;
    for (uint32_t i = 0; i < layout->n_layers * layout->n_heads * n; i++) {
        const uint32_t e = i % n, h = i / n % layout->n_heads, l = i / n / layout->n_heads;
        const int is_v = e >= layout->k.size;
        const uint32_t at = is_v ? e - layout->k.size : e;
        kvp_layer layer;
        assert_ok(kvp_memory_layer(p->memories[p->n_groups], l, &layer));
        const kvp_layer_part *part = is_v ? &layer.v : &layer.k;
        unsigned char *byte = (unsigned char *)part->base + (size_t)slot * part->block_stride +
                              h * part->head_stride + at / part->run * part->run_stride +
                              at % part->run;
        const unsigned char right =
            byte_of(n_tokens, layout->first_layer + l, layout->first_head + h, e);
        if (write)
            *byte = right;
        else if (*byte != right)
            return 0;
    }
    return 1;
}

void write_state(place *p, uint32_t slot, uint32_t n_tokens)
{
    (void)each_byte(p, slot, n_tokens, 1);
}

int has_state(const place *p, uint32_t slot, uint32_t n_tokens)
{
    return each_byte(p, slot, n_tokens, 0);
}

kvp_state_info state_in(const place *p, kvp_seq seq)
{
    kvp_state_info info;
    assert_ok(kvp_seq_state_get(p->w.cache, seq, &info));
    return info;
}

/* The same of one layer of both, and of one token. */
static int same_token(const place *a, kvp_seq seq_a, const place *b, kvp_seq seq_b, uint32_t t,
                      layer_at at)
{
    const int64_t slots[2] = {slot_of(a, seq_a, at.group, t), slot_of(b, seq_b, at.group, t)};
    kvp_layer from, to;
    float x[64], y[64];
    assert_ok(kvp_memory_layer(a->memories[at.group], at.l, &from));
    assert_ok(kvp_memory_layer(b->memories[at.group], at.l, &to));
    for (uint32_t i = 0; slots[0] != 0 && slots[1] != 0 && i < 2 * a->layout.n_heads; i++) {
        const uint32_t size = i % 2 ? from.v.size : from.k.size;
        const int which = i % 2 ? KVP_V : KVP_K;
        if (size == 0)
            continue;
        assert_ok(kvp_layer_read(&from, which, slots[0], i / 2, x));
        assert_ok(kvp_layer_read(&to, which, slots[1], i / 2, y));
        if (memcmp(x, y, size * sizeof(float)) != 0)
            return 0;
    }
    return 1;
}

int same_kv(const place *a, kvp_seq seq_a, const place *b, kvp_seq seq_b, kvp_range range)
{
    for (uint32_t i = 0; i < a->n_groups * a->layout.n_layers; i++) {
        const layer_at at = {i / a->layout.n_layers, i % a->layout.n_layers};
        for (uint32_t t = range.begin; t < range.end; t++)
            if (!same_token(a, seq_a, b, seq_b, t, at))
                return 0;
    }
    return 1;
}

void run_plan(place *p)
{
    kvp_copy copies[64];
    kvp_copier_config config;
    kvp_copier *copier;
    const uint32_t n = take_plan(&p->w, copies, 64);
    kvp_copier_config_init(&config);
    config.n_groups = p->n_groups;
    config.device = p->memories;
    assert_ok(kvp_copier_create(&config, &copier));
    assert_ok(kvp_copier_run(copier, copies, n, NULL));
    kvp_copier_destroy(copier);
}

static size_t tensor_bytes(const kvp_layout *layout, uint32_t tensor)
{
    const kvp_part *parts[4] = {&layout->k, &layout->v, &layout->k_scales, &layout->v_scales};
    for (int i = 0; i < 4; i++)
        for (uint32_t l = 0; parts[i]->size > 0 && l < layout->n_layers; l++)
            if (parts[i]->tensor + l * parts[i]->tensor_step == tensor)
                return parts[i]->tensor_bytes;
    return 0;
}

void watch_place(place *p)
{
    for (uint32_t g = 0; g < p->n_groups; g++) {
        for (uint32_t i = 0; i < p->layouts[g].n_tensors; i++) {
            const void *from = kvp_memory_tensor(p->memories[g], i);
            if (from)
                memcpy(kvp_memory_tensor(p->before[g], i), from, tensor_bytes(&p->layouts[g], i));
        }
    }
}

/* Put the slots of the range back to what they were, in the copy that is thrown away after. */
static void undo(const place *p, int64_t slot, layer_at where)
{
    kvp_layer now, then;
    const size_t bytes = kvp_type_bytes(p->layout.type);
    assert_ok(kvp_memory_layer(p->memories[where.group], where.l, &now));
    assert_ok(kvp_memory_layer(p->before[where.group], where.l, &then));
    const kvp_layer_part *parts[2][2] = {{&now.k, &then.k}, {&now.v, &then.v}};
    const size_t block = (size_t)slot / now.block_tokens, token = (size_t)slot % now.block_tokens;
    for (int i = 0; i < 2; i++) {
        const kvp_layer_part *a = parts[i][0], *b = parts[i][1];
        for (uint32_t k = 0; a->base && k < now.n_heads * a->size; k++) {
            const uint32_t h = k / a->size, e = k % a->size;
            const size_t at = block * a->block_stride + token * a->token_stride +
                              h * a->head_stride + e / a->run * a->run_stride + e % a->run * bytes;
            memcpy(b->base + at, a->base + at, bytes);
            const size_t scale = block * a->scale_block_stride + h * a->scale_head_stride;
            if (a->scales)
                memcpy((char *)b->scales + scale, (char *)a->scales + scale, sizeof(float));
        }
    }
}

void assert_nothing_else_changed(const place *p, kvp_seq seq, kvp_range range)
{
    for (uint32_t i = 0; i < p->n_groups * p->layout.n_layers; i++) {
        const layer_at at = {i / p->layout.n_layers, i % p->layout.n_layers};
        for (uint32_t t = range.begin; t < range.end; t++) {
            const int64_t slot = slot_of(p, seq, at.group, t);
            if (slot != 0)
                undo(p, slot, at);
        }
    }
    for (uint32_t g = 0; g < p->n_groups; g++) {
        for (uint32_t i = 0; i < p->layouts[g].n_tensors; i++) {
            const void *now = kvp_memory_tensor(p->memories[g], i);
            if (now)
                assert_memory_equal(now, kvp_memory_tensor(p->before[g], i),
                                    tensor_bytes(&p->layouts[g], i));
        }
    }
}

/* ---------------------------------------------------------------------------------------- links */

static int comes_now(link_faults *f, uint32_t kind, uint32_t count)
{
    if (f->kind != kind || f->n != count)
        return 0;
    f->happened = 1;
    return 1;
}

static kvp_status lend(void *context, size_t n_bytes, void **out_buffer)
{
    link_faults *f = context;
    f->n_lends++;
    if (comes_now(f, FAULT_LEND, f->n_lends))
        f->broken = KVP_E_IO;
    if (f->broken != KVP_OK)
        return f->broken;
    if (f->lends != KVP_OK || comes_now(f, FAULT_AGAIN, f->n_lends))
        return f->lends != KVP_OK ? f->lends : KVP_E_AGAIN;
    return f->inner.lend(f->inner.context, n_bytes, out_buffer);
}

static kvp_status post_copy(link_faults *f, const uint8_t *bytes, size_t n_bytes)
{
    void *buffer;
    if (f->inner.lend(f->inner.context, n_bytes, &buffer) != KVP_OK)
        return KVP_OK; /* no room for a second one: it is lost */
    memcpy(buffer, bytes, n_bytes);
    return f->inner.post(f->inner.context, n_bytes);
}

static kvp_status post(void *context, size_t n_bytes)
{
    link_faults *f = context;
    const uint32_t n = ++f->n_posts;
    if (comes_now(f, FAULT_POST, n))
        f->broken = KVP_E_IO;
    if (comes_now(f, FAULT_BREAK, n))
        f->broken = KVP_E_PEER;
    if (f->broken != KVP_OK)
        return f->broken;
    if (comes_now(f, FAULT_CALL, n))
        f->call(f->context);
    void *buffer; /* that is lent: its owner has written into it */
    const kvp_status lent = f->inner.lend(f->inner.context, n_bytes, &buffer);
    if (lent != KVP_OK)
        return lent;
    uint8_t *message = buffer;
    if (comes_now(f, FAULT_DROP, n))
        return KVP_OK;
    if (comes_now(f, FAULT_FLIP_HEAD, n))
        message[17] ^= 0x10;
    if (comes_now(f, FAULT_FLIP_BODY, n))
        message[n_bytes - 2] ^= 0x01;
    if (comes_now(f, FAULT_CUT, n))
        n_bytes -= 3;
    if (comes_now(f, FAULT_TWICE, n) || comes_now(f, FAULT_SWAP, n)) {
        f->n_held = n_bytes;
        assert_true(n_bytes <= sizeof f->held);
        memcpy(f->held, message, n_bytes);
        if (f->kind == FAULT_SWAP)
            return KVP_OK;
    }
    const kvp_status status = f->inner.post(f->inner.context, n_bytes);
    if (status != KVP_OK || f->n_held == 0)
        return status;
    n_bytes = f->n_held;
    f->n_held = 0;
    return post_copy(f, f->held, n_bytes);
}

static kvp_status take(void *context, const void **out_bytes, size_t *out_n_bytes)
{
    link_faults *f = context;
    f->n_takes++;
    if (comes_now(f, FAULT_TAKE, f->n_takes))
        f->broken = KVP_E_IO;
    if (f->broken != KVP_OK)
        return f->broken;
    if (comes_now(f, FAULT_AGAIN, f->n_takes))
        return KVP_E_AGAIN;
    return f->inner.take(f->inner.context, out_bytes, out_n_bytes);
}

static void give_back(void *context)
{
    link_faults *f = context;
    f->inner.give_back(f->inner.context);
}

static void progress(void *context)
{
    link_faults *f = context;
    f->n_progress++;
    f->inner.progress(f->inner.context);
}

static kvp_link harm(link_faults *faults, const kvp_link *inner, uint32_t kind, uint32_t n)
{
    *faults = (link_faults){.inner = *inner, .kind = kind, .n = n};
    return (kvp_link){.struct_size = sizeof(kvp_link),
                      .max_message = inner->max_message,
                      .context = faults,
                      .lend = lend,
                      .post = post,
                      .take = take,
                      .give_back = give_back,
                      .progress = progress};
}

/* ---------------------------------------------------------------------------------------- pairs */

#ifdef _WIN32

static void make_link(pair *p, uint32_t n_messages)
{
    assert_ok(kvp_loopback_create(KVP_LINK_MESSAGE_MIN, n_messages, &p->loopback, p->ends));
}

static void cut_sockets(const pair *p)
{
    (void)p;
}

static void close_link(const pair *p)
{
    (void)p;
}

#else

void make_tcp_pair(int *out_sockets)
{
    assert_true(open_tcp_pair(out_sockets));
}

static void open_tcp(pair *p, uint32_t n_messages)
{
    make_tcp_pair(p->sockets);
    for (int i = 0; i < 2; i++)
        assert_ok(kvp_tcp_open(p->sockets[i], KVP_LINK_MESSAGE_MIN, n_messages, &p->tcp[i], NULL));
    for (int i = 0; i < 2; i++) {
        kvp_status status;
        while ((status = kvp_tcp_connect(p->tcp[i], &p->ends[i], NULL)) == KVP_E_AGAIN)
            ; /* the system has it on its way */
        assert_ok(status);
    }
}

static void open_shm(pair *p, uint32_t n_messages)
{
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, p->sockets), 0);
    for (int i = 0; i < 2; i++)
        assert_ok(kvp_shm_open(p->sockets[i], KVP_LINK_MESSAGE_MIN, n_messages, &p->shm[i], NULL));
    for (int i = 0; i < 2; i++)
        assert_ok(kvp_shm_connect(p->shm[i], &p->ends[i], NULL));
}

static void make_link(pair *p, uint32_t n_messages)
{
    const char *name = getenv("KVP_TEST_LINK");
    if (name && strcmp(name, "shm") == 0)
        open_shm(p, n_messages);
    else if (name && strcmp(name, "tcp") == 0)
        open_tcp(p, n_messages);
    else
        assert_ok(kvp_loopback_create(KVP_LINK_MESSAGE_MIN, n_messages, &p->loopback, p->ends));
}

/* As when both processes end. */
static void cut_sockets(const pair *p)
{
    if (p->shm[0] || p->tcp[0])
        (void)shutdown(p->sockets[0], SHUT_RDWR);
}

static void close_link(const pair *p)
{
    for (int i = 0; i < 2 && (p->shm[0] || p->tcp[0]); i++) {
        kvp_shm_close(p->shm[i]);
        kvp_tcp_close(p->tcp[i]);
        (void)close(p->sockets[i]);
    }
}

#endif

void cut_link(const pair *p)
{
    kvp_loopback_cut(p->loopback);
    cut_sockets(p);
}

pair make_pair(const place_shape *a, const place_shape *b, uint32_t n_messages)
{
    pair p = {.a = make_place(a), .b = make_place(b)};
    const kvp_transfer_config config_a = transfer_config_of(&p.a);
    const kvp_transfer_config config_b = transfer_config_of(&p.b);
    make_link(&p, n_messages);
    assert_ok(kvp_sender_create(&config_a, &p.sender));
    assert_ok(kvp_receiver_create(&config_b, &p.receiver));
    assert_ok(kvp_sender_attach(p.sender, &p.ends[0], &p.link_a));
    assert_ok(kvp_receiver_attach(p.receiver, &p.ends[1], &p.link_b));
    return p;
}

void harm_side(pair *p, uint32_t side, uint32_t kind, uint32_t n)
{
    const kvp_link link = harm(&p->faults[side], &p->ends[side], kind, n);
    if (side == 0) {
        assert_ok(kvp_sender_detach(p->sender, p->link_a));
        assert_ok(kvp_sender_attach(p->sender, &link, &p->link_a));
    } else {
        assert_ok(kvp_receiver_detach(p->receiver, p->link_b));
        assert_ok(kvp_receiver_attach(p->receiver, &link, &p->link_b));
    }
}

void end_pair(pair *p)
{
    kvp_sender_destroy(p->sender);
    kvp_receiver_destroy(p->receiver);
    kvp_loopback_destroy(p->loopback);
    close_link(p);
    if (p->seq_a.bits != 0)
        (void)kvp_seq_close(p->a.w.cache, p->seq_a, NULL);
    if (p->seq_b.bits != 0)
        (void)kvp_seq_close(p->b.w.cache, p->seq_b, NULL);
    end_place(&p->a);
    end_place(&p->b);
}

void open_both(pair *p, uint32_t n, uint32_t cached)
{
    if (cached > 0) {
        const kvp_seq seq = open_seq(&p->b.w, ints(1), cached, NULL);
        write_kv(&p->b, seq, (kvp_range){0, cached}, KVP_LAYERS_ALL);
        assert_ok(kvp_seq_commit(p->b.w.cache, seq, cached));
        close_seq(&p->b.w, seq);
    }
    kvp_prompt prompt = prompt_of(ints(1), n);
    prompt.flags = KVP_OPEN_RECEIVE;
    p->seq_a = open_seq(&p->a.w, ints(1), n, NULL);
    p->seq_b = open_with(&p->b.w, &prompt, NULL);
}

kvp_receive receive_of(const pair *p)
{
    return (kvp_receive){.struct_size = sizeof(kvp_receive),
                         .seq = p->seq_b,
                         .end = KVP_END,
                         .space_bytes = 5,
                         .space = "space"};
}

kvp_send send_of(const pair *p)
{
    return (kvp_send){.struct_size = sizeof(kvp_send),
                      .seq = p->seq_a,
                      .ticket = p->ticket,
                      .ticket_bytes = p->n_ticket,
                      .link = p->link_a,
                      .space_bytes = 5,
                      .space = "space",
                      .ready_tokens = KVP_END};
}

void reserve(pair *p)
{
    reserve_to(p, KVP_END);
}

void reserve_to(pair *p, uint32_t end)
{
    kvp_receive receive = receive_of(p);
    receive.end = end;
    assert_ok(kvp_receiver_reserve(p->receiver, &receive, p->ticket, sizeof p->ticket, &p->n_ticket,
                                   &p->id_b));
}

void mark(pair *p)
{
    const kvp_send send = send_of(p);
    assert_ok(kvp_sender_mark(p->sender, &send, &p->id_a));
}

void mark_both(pair *p, pair *q)
{
    memcpy(q->ticket, p->ticket, p->n_ticket);
    q->n_ticket = p->n_ticket;
    mark(p);
    mark(q);
}

void prefill(pair *p, kvp_range range)
{
    const uint32_t n_layers = p->a.n_groups * p->a.layout.n_layers;
    write_kv(&p->a, p->seq_a, range, KVP_LAYERS_ALL);
    if (p->a.has_states)
        write_state(&p->a, state_in(&p->a, p->seq_a).write_slot, range.end);
    for (uint32_t l = 0; l < n_layers; l++)
        if (p->id_a != 0 && info_a(p).state < KVP_TRANSFER_COMPLETE)
            assert_ok(kvp_sender_ready(p->sender, p->id_a, l, range.end));
    for (int i = 0; i < 8 && p->a.n_groups > 1; i++) /* before windows drop it */
        progress_both(p, 1);
    assert_ok(kvp_seq_commit(p->a.w.cache, p->seq_a, range.end));
}

void progress_both(pair *p, uint32_t rounds)
{
    for (uint32_t i = 0; i < rounds; i++) {
        assert_ok(kvp_sender_progress(p->sender, NULL));
        assert_ok(kvp_receiver_progress(p->receiver, 0, NULL));
    }
}

kvp_transfer_info info_a(const pair *p)
{
    kvp_transfer_info info;
    assert_ok(kvp_sender_info_get(p->sender, p->id_a, &info));
    return info;
}

kvp_transfer_info info_b(const pair *p)
{
    kvp_transfer_info info;
    assert_ok(kvp_receiver_info_get(p->receiver, p->id_b, &info));
    return info;
}
