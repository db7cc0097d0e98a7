/* Programs built against other versions of the headers: their structs are shorter or longer than
 * the library's. Each kind is given, and asked for, in every size that it could have.
 * A struct that is given: the same as one of the library's size whose missing fields have defaults;
 * longer ones only with zeros behind. One that is asked for: what both know is the same, what only
 * the program knows is 0, and nothing behind the program's struct is touched. */
#include "base/sized.h"
#include "world.h"

#include <kvpager/attention.h>
#include <kvpager/inspect.h>
#include <kvpager/memory.h>
#include <kvpager/oplog.h>
#include <kvpager/sched.h>
#include <kvpager/snapshot.h>
#include <kvpager/transfer.h>
#include <kvpager/trees.h>
#include <kvpager/meta.h>
#include <kvpager/wire.h>
#include <stdlib.h>
#include <string.h>

enum { ROOM = KVPI_SIZED_MAX + 64, UNTOUCHED = 0xA5, LAYERS = 2, HEADS = 2, DIMS = 8 };

static struct {
    world w;
    world lender; /* with a host tier */
    kvp_seq seq;
    kvp_sched *sched;
    kvp_request request;
    kvp_memory *memory;
    kvp_layout layout;
    kvp_wire_sender *sender;
    kvp_wire_mirror *mirror;
    kvp_receiver *receiver;
    kvp_loopback *loopback;
    kvp_link ends[2];
    kvp_layer layer;
} all;

/* ------------------------------------------------------------------------------ the arithmetic */

static void test_which_sizes_there_are(void **state)
{
    (void)state;
    for (size_t n = 0; n < 8192; n++) {
        assert_int_equal(kvpi_sized_fits(n), n >= sizeof(size_t) && n <= 4096 && n % 4 == 0);
    }
    assert_false(kvpi_sized_fits(SIZE_MAX));
    assert_false(kvpi_sized_fits(SIZE_MAX - 3));
}

/* ------------------------------------------------------------------------- structs asked for */

/* A struct that a call gives: how large it is here, whether it begins with its size (2: and the
 * call gives no status), and the call. */
typedef struct given {
    const char *name;
    size_t size;
    int has_size;
    kvp_status (*call)(void *out, size_t size);
    size_t hole; /* 4 bytes that are no field's; 0: none */
} given;

#define GIVES_HOLE(function, type, has_size, hole, expression)                                     \
    static kvp_status give_##function(void *out, size_t n)                                         \
    {                                                                                              \
        return expression;                                                                         \
    }                                                                                              \
    static const given gives_##function = {#function, sizeof(type), has_size, give_##function,     \
                                           hole};
#define GIVES(function, type, has_size, expression)                                                \
    GIVES_HOLE(function, type, has_size, 0, expression)
#define INIT(function, type)                                                                       \
    static kvp_status give_##function(void *out, size_t n)                                         \
    {                                                                                              \
        kvp_##function##_init_sized(out, n);                                                       \
        return KVP_OK;                                                                             \
    }                                                                                              \
    static const given gives_##function = {#function, sizeof(type), 2, give_##function, 0};

static kvp_status open_and_close(void *out, size_t n)
{
    kvp_seq seq;
    const kvp_prompt prompt = prompt_of(ints(50), 6);
    const kvp_status status = kvp_seq_open_sized(all.w.cache, all.w.ns, &prompt, &seq, out, n);
    if (status == KVP_OK) {
        assert_ok(kvp_seq_close(all.w.cache, seq, NULL));
    }
    return status;
}

static kvp_status load_nothing(void *out, size_t n, int peek);
static kvp_status look(void *out, size_t n);
static kvp_status apply(void *out, size_t n);
static kvp_status read_ticket(void *out, size_t n);

static kvp_status make_loopback(void *out, size_t n)
{
    unsigned char two[2 * ROOM];
    kvp_loopback *loopback;
    memset(two, UNTOUCHED, sizeof(two));
    const kvp_status status = kvp_loopback_create_sized(4096, 2, &loopback, (kvp_link *)two, n);
    if (status == KVP_OK) {
        memcpy(out, two, n);
        /* Their contexts differ; where the one that follows begins is what matters. */
        for (size_t at = offsetof(kvp_link, context); at < n && at < offsetof(kvp_link, lend);
             at++) {
            ((unsigned char *)out)[at] = 0;
        }
        assert_memory_equal(two, two + n, sizeof(size_t));
        assert_int_equal(two[2 * n], UNTOUCHED);
        kvp_loopback_destroy(loopback);
    }
    return status;
}

static kvp_status extend_one(void *out, size_t n)
{
    const kvp_batch batch = {.struct_size = sizeof(batch), .n_seqs = 1, .seqs = &all.seq};
    return kvp_can_extend_sized(all.w.cache, &batch, out, n);
}

static int32_t to_fill[1];
static kvp_status load_one(void *out, size_t n)
{
    const kvp_prompt prompt = prompt_of(ints(900), 4);
    kvp_load load = {.struct_size = sizeof(load), .entries = {0, 1}, .blocks = to_fill};
    assert_ok(kvp_load_begin(all.lender.cache, all.lender.ns, &prompt, &load));
    const kvp_status status =
        kvp_load_done_sized(all.lender.cache, load.number, (const uint8_t[]){0}, 1, out, n);
    if (status != KVP_OK) {
        assert_ok(kvp_load_cancel(all.lender.cache, load.number));
    }
    return status;
}

static kvp_status mirror_all(void *out, size_t n)
{
    static int32_t host[1];
    return kvp_mirror_sized(all.lender.cache, (const int32_t[]){5}, 1, UINT32_MAX, host, out, n);
}

#define CACHE all.w.cache
INIT(config, kvp_config)
INIT(sched_config, kvp_sched_config)
GIVES_HOLE(wire_config, kvp_wire_config, 2, 36, (kvp_wire_config_init_sized(out, n), KVP_OK))
INIT(layout, kvp_layout)
INIT(memory_options, kvp_memory_options)
INIT(copier_config, kvp_copier_config)
INIT(transfer_config, kvp_transfer_config)
INIT(snapshot_options, kvp_snapshot_options)
INIT(arena_options, kvp_arena_options)
INIT(append, kvp_append)
INIT(attention, kvp_attention)
INIT(merge, kvp_merge)
GIVES(cache_config, kvp_config, 1, kvp_cache_config_sized(CACHE, out, n))
GIVES(config_peek, kvp_config, 1, kvp_config_peek_sized(CACHE, out, n))
GIVES(stats, kvp_stats, 0, kvp_cache_stats_sized(CACHE, out, n))
GIVES(shortage, kvp_shortage, 0, kvp_cache_shortage_sized(CACHE, out, n))
GIVES(match, kvp_open_info, 0,
      kvp_match_sized(CACHE, all.w.ns, &(kvp_prompt){.struct_size = sizeof(kvp_prompt)}, out, n))
GIVES(open, kvp_open_info, 0, open_and_close(out, n))
GIVES(can_open, kvp_admission, 0,
      kvp_can_open_sized(CACHE, all.w.ns, &(kvp_prompt){.struct_size = sizeof(kvp_prompt)}, out, n))
GIVES(can_extend, kvp_admission, 0, extend_one(out, n))
GIVES(can_swap_out, kvp_admission, 0, kvp_can_swap_out_sized(CACHE, &all.seq, 1, out, n))
GIVES(can_swap_in, kvp_admission, 0, kvp_can_swap_in_sized(CACHE, NULL, 0, 0, out, n))
GIVES(seq_info, kvp_seq_info, 0, kvp_seq_info_get_sized(CACHE, all.seq, out, n))
GIVES(ns_info, kvp_ns_info, 0, kvp_ns_info_get_sized(CACHE, all.w.ns, out, n))
GIVES(block_info, kvp_block_info, 0,
      kvp_block_info_get_sized(CACHE, 0, KVP_DEVICE, row_entry(&all.w, all.seq, 0), out, n))
GIVES(block_origin, kvp_block_origin, 0,
      kvp_block_origin_get_sized(CACHE, KVP_DEVICE, row_entry(&all.w, all.seq, 0), out, n))
GIVES(mirrored, kvp_mirrored, 0, mirror_all(out, n))
GIVES(loaded, kvp_loaded, 0, load_one(out, n))
GIVES(arena, kvp_arena_report, 0, look(out, n))
GIVES(snapshot_load, kvp_snapshot_report, 0, load_nothing(out, n, 0))
GIVES(snapshot_peek, kvp_snapshot_info, 0, load_nothing(out, n, 1))
GIVES(sched_stats, kvp_sched_stats, 0, kvp_sched_stats_get_sized(all.sched, out, n))
GIVES(tick, kvp_sched_expired, 0, kvp_sched_tick_sized(all.sched, 0, out, n))
GIVES(request, kvp_request_info, 0, kvp_request_info_get_sized(all.sched, all.request, out, n))
GIVES_HOLE(sample, kvp_sample_info, 0, 20,
           kvp_request_sample_sized(all.sched, all.request, 0, out, n))
GIVES_HOLE(wire_config_of, kvp_wire_config, 1, 36, kvp_wire_config_of_sized(CACHE, out, n))
GIVES_HOLE(wire_apply, kvp_wire_news, 0, 44, apply(out, n))
GIVES_HOLE(wire_info, kvp_wire_mirror_state, 0, 20, kvp_wire_mirror_info_sized(all.mirror, out, n))
GIVES_HOLE(wire_seq, kvp_wire_seq, 0, 52, kvp_wire_mirror_seq_sized(all.mirror, 3, out, n))
GIVES(slice, kvp_layout, 1, kvp_layout_slice_sized(&all.layout, &(kvp_slice){0, 1, 0, 1}, out, n))
GIVES(describe, kvp_layout, 1, kvp_memory_describe_sized(all.memory, out, n, NULL, 0))
GIVES(describe_info, kvp_memory_info, 0, kvp_memory_describe_sized(all.memory, NULL, 0, out, n))
GIVES(loopback, kvp_link, 1, make_loopback(out, n))
GIVES_HOLE(ticket, kvp_ticket, 0, 68, read_ticket(out, n))
GIVES(receiver_stats, kvp_receiver_stats, 0, kvp_receiver_stats_get_sized(all.receiver, out, n))

static const given *const gives[] = {
    &gives_config,         &gives_sched_config,  &gives_wire_config,     &gives_layout,
    &gives_memory_options, &gives_copier_config, &gives_transfer_config, &gives_snapshot_options,
    &gives_arena_options,  &gives_append,        &gives_attention,       &gives_merge,
    &gives_cache_config,   &gives_config_peek,   &gives_stats,           &gives_shortage,
    &gives_match,          &gives_open,          &gives_can_open,        &gives_can_extend,
    &gives_can_swap_out,   &gives_can_swap_in,   &gives_seq_info,        &gives_ns_info,
    &gives_block_info,     &gives_block_origin,  &gives_mirrored,        &gives_loaded,
    &gives_arena,          &gives_snapshot_load, &gives_snapshot_peek,   &gives_sched_stats,
    &gives_request,        &gives_sample,        &gives_wire_config_of,  &gives_wire_apply,
    &gives_wire_info,      &gives_wire_seq,      &gives_slice,           &gives_describe,
    &gives_describe_info,  &gives_loopback,      &gives_ticket,          &gives_receiver_stats,
    &gives_tick,
};

static void check_given(const given *g, const unsigned char *whole, size_t size)
{
    static unsigned char out[ROOM];
    memset(out, UNTOUCHED, sizeof(out));
    const kvp_status status = g->call(out, size);
    const size_t written = kvpi_sized_fits(size) ? size : 0;
    if (g->has_size != 2 || written == 0) { /* an init function returns nothing */
        assert_status(written > 0 || g->has_size == 2 ? KVP_OK : KVP_E_ARG, status);
    }
    for (size_t i = written; i < sizeof(out); i++) {
        assert_int_equal(out[i], UNTOUCHED);
    }
    if (written == 0) {
        return;
    }
    for (size_t i = g->hole; g->hole > 0 && i < g->hole + 4; i++) {
        out[i] = whole[i]; /* between two fields, or behind the last */
    }
    const size_t from = g->has_size ? sizeof(size_t) : 0;
    const size_t known = size < g->size ? size : g->size;
    assert_memory_equal(out + from, whole + from, known - from);
    if (g->has_size) {
        assert_memory_equal(out, &size, sizeof(size));
    }
    for (size_t i = known; i < size; i++) {
        assert_int_equal(out[i], 0);
    }
}

static void test_structs_that_are_given_to_a_program(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(gives) / sizeof(*gives); i++) {
        const given *g = gives[i];
        static unsigned char whole[ROOM];
        print_message("%s\n", g->name);
        memset(whole, 0, sizeof(whole));
        assert_status(KVP_OK, g->call(whole, g->size));
        for (size_t size = 0; size < g->size + 24; size++) {
            check_given(g, whole, size);
        }
        check_given(g, whole, 1024);
        check_given(g, whole, KVPI_SIZED_MAX);
        check_given(g, whole, SIZE_MAX);
    }
}

/* ---------------------------------------------------------------------------- structs given */

/* A struct that a call takes: one of the library's size, its size, how many bytes of it are no
 * defaults, and a call that says KVP_E_ARG only when it refuses the struct itself. */
typedef struct taken {
    const char *name;
    const void *good;
    size_t size;
    size_t needed;
    kvp_status (*call)(void *in);
} taken;

static void check_taken(const taken *t)
{
    static _Alignas(64) unsigned char in[ROOM];
    print_message("%s\n", t->name);
    memset(in, 0, sizeof(in));
    memcpy(in, t->good, t->size);
    const kvp_status expected = t->call(in);
    assert_int_not_equal(expected, KVP_E_ARG);
    for (size_t size = 0; size <= t->size + 24; size++) {
        memset(in, 0, sizeof(in));
        memcpy(in, t->good, t->size);
        memcpy(in, &size, sizeof(size));
        const size_t end = size < t->size ? size : t->size;
        if (size < t->size && size >= t->needed) {
            memset(in + end, 0xFF, sizeof(in) - end); /* not the program's struct any more */
        } else if (size < t->needed && kvpi_sized_fits(size)) {
            continue; /* fields that the call cannot do without */
        }
        assert_status(kvpi_sized_fits(size) ? expected : KVP_E_ARG, t->call(in));
        for (size_t i = t->size; kvpi_sized_fits(size) && i < size; i++) {
            in[i] = 1;
            assert_status(KVP_E_ARG, t->call(in));
            in[i] = 0;
        }
    }
}

#define UP_TO(type, field) (offsetof(type, field) + sizeof(((type *)0)->field))
#define TAKES(type, up_to, call_, ...)                                                             \
    check_taken(&(taken){#type, &(type){.struct_size = sizeof(type), __VA_ARGS__}, sizeof(type),   \
                         UP_TO(type, up_to), call_})

#define CALL(function, expression)                                                                 \
    static kvp_status take_##function(void *in)                                                    \
    {                                                                                              \
        return expression;                                                                         \
    }

static const kvp_seq no_seq = {77};
static size_t bytes;
static kvp_admission admission;
static kvp_seq opened;
static kvp_meta_sizes sizes = {.n_seqs = 1, .n_tokens = 1, .n_entries = 4, .max_blocks = 4};
static int32_t arrays[8][64];

static kvp_status open_prompt(void *in)
{
    const kvp_status status = kvp_seq_open(CACHE, all.w.ns, in, &opened, NULL);
    if (status == KVP_OK) {
        assert_ok(kvp_seq_close(CACHE, opened, NULL));
    }
    return status;
}

#define FILL(kind)                                                                                 \
    kvp_meta_fill_##kind(                                                                          \
        CACHE, &(kvp_meta_batch){sizeof(kvp_meta_batch), 1, 0, &all.seq, NULL, NULL}, in)
CALL(config, kvp_cache_bytes(in, &bytes))
CALL(config_check, kvp_config_check(in, NULL))
CALL(prompt, open_prompt(in))
CALL(prompt_match, kvp_match(CACHE, all.w.ns, in, &(kvp_open_info){0}))
CALL(prompt_can, kvp_can_open(CACHE, all.w.ns, in, &admission))
CALL(prompt_check, kvp_prompt_check(CACHE, all.w.ns, in, NULL))
CALL(batch, kvp_seq_extend_many(CACHE, in))
CALL(batch_fill, kvp_seq_fill_many(CACHE, in))
CALL(batch_can, kvp_can_extend(CACHE, in, &admission))
CALL(batch_tree, kvp_seq_extend_tree(CACHE, in, NULL))
CALL(accept, kvp_seq_accept(CACHE, in))

static kvp_status take_load(void *in)
{
    const kvp_prompt prompt = prompt_of(ints(950), 4);
    kvp_load *load = in;
    kvp_load known;
    size_t size;
    memcpy(&size, in, sizeof(size));
    const kvp_status status = kvp_load_begin(all.lender.cache, all.lender.ns, &prompt, load);
    memset(&known, 0, sizeof(known));
    memcpy(&known, in, size < sizeof(known) ? size : sizeof(known));
    if (status == KVP_OK && known.number != 0) {
        assert_ok(kvp_load_cancel(all.lender.cache, known.number));
    }
    return status;
}

CALL(meta_batch, kvp_meta_measure(CACHE, in, &sizes))
CALL(dense, FILL(dense))
CALL(csr, FILL(csr))
CALL(windowed, FILL(windowed))
CALL(tree, FILL(tree))
CALL(trtllm, FILL(trtllm))
CALL(delta, FILL(delta))
CALL(cascade, FILL(cascade))
CALL(place_dense, kvp_meta_place_dense(in, &sizes, NULL, 0, &bytes))
CALL(place_csr, kvp_meta_place_csr(in, &sizes, NULL, 0, &bytes))
CALL(place_windowed, kvp_meta_place_windowed(in, &sizes, NULL, 0, &bytes))
CALL(place_tree, kvp_meta_place_tree(in, &sizes, NULL, 0, &bytes))
CALL(sched_config, kvp_sched_bytes(in, CACHE, &bytes))
CALL(sched_check, kvp_sched_config_check(in, CACHE, NULL))
CALL(wire_config, kvp_wire_mirror_bytes(in, &bytes))
CALL(wire_sender, kvp_wire_sender_bytes(in, &bytes))
CALL(wire_check, kvp_wire_config_check(in, NULL))
CALL(wire_step, kvp_wire_sender_encode(all.sender, in, NULL, 0, &bytes))
CALL(layout_check, kvp_layout_check(in, NULL))
CALL(layout_slice, kvp_layout_slice(in, &(kvp_slice){0, 1, 0, 1}, &(kvp_layout){0}))
CALL(layout_bytes, kvp_layout_block_bytes(in) > 0 ? KVP_OK : KVP_E_ARG)
CALL(receive, kvp_receiver_reserve(all.receiver, in, NULL, 0, &bytes, &(uint64_t){0}))

static int write_nowhere(void *context, const void *from, size_t n)
{
    (void)context, (void)from, (void)n;
    return 0;
}
CALL(snapshot, kvp_snapshot_save(CACHE, in, &(kvp_sink){NULL, write_nowhere}))

static kvp_status take_options(void *in)
{
    kvp_memory *memory;
    const kvp_status status = kvp_memory_create(&all.layout, in, &memory);
    if (status == KVP_OK) {
        kvp_memory_destroy(memory);
    }
    return status;
}

static kvp_status take_layout(void *in)
{
    kvp_memory *memory;
    const kvp_status status = kvp_memory_create(in, NULL, &memory);
    if (status == KVP_OK) {
        kvp_memory_destroy(memory);
    }
    return status;
}

static kvp_status take_copier(void *in)
{
    kvp_copier *copier;
    const kvp_status status = kvp_copier_create(in, &copier);
    if (status == KVP_OK) {
        kvp_copier_destroy(copier);
    }
    return status;
}

static kvp_status take_transfer(void *in)
{
    kvp_receiver *receiver;
    const kvp_status status = kvp_receiver_create(in, &receiver);
    if (status == KVP_OK) {
        kvp_receiver_destroy(receiver);
    }
    return status;
}

static kvp_status take_link(void *in)
{
    uint32_t link;
    const kvp_status status = kvp_receiver_attach(all.receiver, in, &link);
    if (status == KVP_OK) {
        assert_ok(kvp_receiver_detach(all.receiver, link));
    }
    return status;
}

static kvp_status take_submission(void *in)
{
    kvp_request request;
    const kvp_status status = kvp_sched_submit(all.sched, in, &request, NULL);
    if (status == KVP_OK) {
        assert_ok(kvp_sched_abort(all.sched, request));
    }
    return status;
}

CALL(append, kvp_append_bytes(in, &bytes))
CALL(append_check, kvp_append_check(in, NULL))
CALL(attention, kvp_attention_bytes(in, &bytes))
CALL(attention_check, kvp_attention_check(in, NULL))
CALL(merge, kvp_merge_run(in))

static void test_structs_of_the_core(void **state)
{
    (void)state;
    static const uint32_t none[] = {0};
    kvp_config config = config_of(4, 4, 7);
    check_taken(&(taken){"kvp_config", &config, sizeof(config), UP_TO(kvp_config, max_steps_out),
                         take_config});
    check_taken(&(taken){"kvp_config_check", &config, sizeof(config),
                         UP_TO(kvp_config, max_steps_out), take_config_check});
    static kvp_status (*const prompts[])(void *) = {take_prompt, take_prompt_match, take_prompt_can,
                                                    take_prompt_check};
    for (int i = 0; i < 4; i++) {
        TAKES(kvp_prompt, n_tokens, prompts[i], .tokens = ints(70), .n_tokens = 5);
    }
    static kvp_status (*const batches[])(void *) = {take_batch, take_batch_fill, take_batch_can,
                                                    take_batch_tree};
    for (int i = 0; i < 4; i++) {
        TAKES(kvp_batch, n_tokens, batches[i], .n_seqs = 1, .seqs = &no_seq, .n_tokens = none);
    }
    TAKES(kvp_accept, leaves, take_accept, .n_seqs = 1, .seqs = &no_seq, .leaves = arrays[0]);
    TAKES(kvp_load, number, take_load, .entries = {0, 1}, .blocks = to_fill);
    TAKES(kvp_snapshot_options, struct_size, take_snapshot, .model = NULL);
}

static void test_structs_of_metadata(void **state)
{
    (void)state;
    kvp_meta_level levels[1] = {{arrays[0], arrays[1], arrays[2], arrays[3], 0, 0}};
    uint32_t had[4] = {0};
    uint64_t versions[2] = {0};
    TAKES(kvp_meta_batch, seqs, take_meta_batch, .n_seqs = 1, .seqs = &all.seq);
    TAKES(kvp_meta_dense, row_stride, take_dense, .row_stride = 8);
    TAKES(kvp_meta_csr, struct_size, take_csr, .max_entries = 0);
    TAKES(kvp_meta_windowed, struct_size, take_windowed, .max_entries = 0);
    TAKES(kvp_meta_tree, struct_size, take_tree, .max_nodes = 0);
    TAKES(kvp_meta_trtllm, row_stride, take_trtllm, .layers_per_block = 1, .row_stride = 8);
    TAKES(kvp_meta_delta, entries, take_delta, .max_entries = 64, .had_version = versions,
          .had_blocks = had, .version = versions + 1, .blocks = had + 2, .indptr = arrays[0],
          .start = arrays[1], .entries = arrays[2]);
    TAKES(kvp_meta_cascade, levels, take_cascade, .max_levels = 1, .max_entries = 64,
          .order = arrays[4], .levels = levels);
    TAKES(kvp_meta_dense, struct_size, take_place_dense, .row_stride = 0);
    TAKES(kvp_meta_csr, struct_size, take_place_csr, .max_entries = 0);
    TAKES(kvp_meta_windowed, struct_size, take_place_windowed, .max_entries = 0);
    TAKES(kvp_meta_tree, struct_size, take_place_tree, .max_nodes = 0);
}

/* What a call writes into a struct that it is given goes into the part that the program has. */
static void test_structs_that_are_written(void **state)
{
    (void)state;
    static _Alignas(64) unsigned char buffer[4096];
    struct {
        kvp_meta_csr csr;
        uint64_t zeros[2];
    } longer = {.csr = {.struct_size = sizeof(longer)}};
    kvp_meta_csr same = {.struct_size = sizeof(same)}, shorter = same;
    assert_ok(kvp_meta_place_csr(&same, &sizes, buffer, sizeof(buffer), &bytes));
    assert_ok(kvp_meta_place_csr(&longer.csr, &sizes, buffer, sizeof(buffer), &bytes));
    assert_int_equal(longer.csr.struct_size, sizeof(longer));
    assert_ptr_equal(longer.csr.slot_mapping, same.slot_mapping);
    assert_int_equal(longer.zeros[0] | longer.zeros[1], 0);
    shorter.struct_size = offsetof(kvp_meta_csr, batch_indices);
    shorter.slot_mapping = (int64_t *)(void *)buffer;
    assert_ok(kvp_meta_place_csr(&shorter, &sizes, buffer, sizeof(buffer), &bytes));
    assert_ptr_equal(shorter.last_block_len, same.last_block_len);
    assert_null(shorter.batch_indices);
    assert_ptr_equal(shorter.slot_mapping, buffer);
    struct {
        kvp_layout layout;
        uint64_t zeros[2];
    } layout = {.layout = all.layout};
    layout.layout.struct_size = sizeof(layout);
    assert_ok(kvp_layout_arrange(&layout.layout, KVP_ORDER_LATENT, NULL));
    assert_int_equal(layout.layout.struct_size, sizeof(layout));
    assert_int_not_equal(layout.layout.k.token_stride, 0);
    uint32_t had[4] = {0};
    uint64_t versions[2] = {0};
    struct {
        kvp_meta_delta delta;
        uint64_t zeros[2];
    } delta = {.delta = {.struct_size = sizeof(delta),
                         .had_version = versions,
                         .had_blocks = had,
                         .version = versions + 1,
                         .blocks = had + 2,
                         .indptr = arrays[0],
                         .start = arrays[1]}};
    assert_ok(take_delta(&delta)); /* asks */
    delta.delta.reserved = 1;
    assert_status(KVP_E_ARG, take_delta(&delta));
    kvp_meta_level levels[1] = {{arrays[0], arrays[1], arrays[2], arrays[3], 0, 0}};
    kvp_meta_cascade cascade = {.struct_size = sizeof cascade,
                                .max_levels = 1,
                                .max_entries = 64,
                                .order = arrays[4],
                                .levels = levels,
                                .reserved = 1};
    assert_status(KVP_E_ARG, take_cascade(&cascade));
    assert_int_equal(delta.delta.n_entries, 2);
}

static void test_structs_above_the_core(void **state)
{
    (void)state;
    kvp_sched_config sched;
    kvp_wire_config wire;
    kvp_memory_options options;
    kvp_copier_config copier;
    kvp_transfer_config transfer;
    kvp_sched_config_init(&sched);
    sched.max_running = 4;
    check_taken(&(taken){"kvp_sched_config", &sched, sizeof(sched), 24, take_sched_config});
    check_taken(&(taken){"kvp_sched_config", &sched, sizeof(sched), 24, take_sched_check});
    kvp_wire_config_init(&wire);
    check_taken(&(taken){"kvp_wire_config", &wire, sizeof(wire), 8, take_wire_config});
    check_taken(&(taken){"kvp_wire_config", &wire, sizeof(wire), 8, take_wire_sender});
    check_taken(&(taken){"kvp_wire_config", &wire, sizeof(wire), 8, take_wire_check});
    TAKES(kvp_wire_step, flags, take_wire_step, .flags = KVP_WIRE_FULL);
    check_taken(
        &(taken){"kvp_layout", &all.layout, sizeof(all.layout), sizeof(all.layout), take_layout});
    check_taken(&(taken){"kvp_layout", &all.layout, sizeof(all.layout), sizeof(all.layout),
                         take_layout_check});
    check_taken(&(taken){"kvp_layout", &all.layout, sizeof(all.layout), sizeof(all.layout),
                         take_layout_slice});
    check_taken(&(taken){"kvp_layout", &all.layout, sizeof(all.layout),
                         offsetof(kvp_layout, k_scales), take_layout_bytes});
    kvp_memory_options_init(&options);
    check_taken(&(taken){"kvp_memory_options", &options, sizeof(options), 8, take_options});
    kvp_copier_config_init(&copier);
    copier.device = &all.memory;
    check_taken(&(taken){"kvp_copier_config", &copier, sizeof(copier),
                         UP_TO(kvp_copier_config, device), take_copier});
    kvp_transfer_config_init(&transfer);
    transfer.cache = CACHE;
    transfer.memory = all.memory;
    check_taken(&(taken){"kvp_transfer_config", &transfer, sizeof(transfer),
                         UP_TO(kvp_transfer_config, memory), take_transfer});
    check_taken(&(taken){"kvp_link", &all.ends[0], sizeof(kvp_link), sizeof(kvp_link), take_link});
    TAKES(kvp_receive, end, take_receive, .seq = no_seq, .end = KVP_END);
    const kvp_prompt prompt = prompt_of(ints(90), 4);
    TAKES(kvp_submission, max_new_tokens, take_submission, .prompt = &prompt, .ns = all.w.ns,
          .max_new_tokens = 4);
}

static void test_structs_of_attention(void **state)
{
    (void)state;
    static const int32_t start[] = {0, 1}, lengths[] = {1}, blocks[] = {1};
    static float row[LAYERS * HEADS * DIMS];
    const kvp_attn_level level = {
        .n_rows = 1, .n_blocks = 1, .blocks = blocks, .row_stride = 1, .lengths = lengths};
    kvp_append append;
    kvp_attention attention;
    kvp_merge merge;
    kvp_append_init(&append);
    append.layer = &all.layer;
    check_taken(&(taken){"kvp_append", &append, sizeof(append), UP_TO(kvp_append, v), take_append});
    check_taken(
        &(taken){"kvp_append", &append, sizeof(append), UP_TO(kvp_append, v), take_append_check});
    kvp_attention_init(&attention);
    attention.layer = &all.layer;
    attention.n_seqs = attention.n_tokens = 1;
    attention.n_heads = HEADS;
    attention.query_start = start;
    attention.levels = &level;
    check_taken(&(taken){"kvp_attention", &attention, sizeof(attention), UP_TO(kvp_attention, tree),
                         take_attention});
    check_taken(&(taken){"kvp_attention", &attention, sizeof(attention), UP_TO(kvp_attention, tree),
                         take_attention_check});
    const kvp_partial partial = {.out = {.data = row}, .lse = {.data = row + DIMS}};
    kvp_merge_init(&merge);
    merge.n_partials = merge.n_tokens = merge.n_heads = 1;
    merge.size = DIMS;
    merge.partials = &partial;
    merge.out.data = row + 2 * DIMS;
    check_taken(&(taken){"kvp_merge", &merge, sizeof(merge), UP_TO(kvp_merge, out), take_merge});
}

/* ------------------------------------------------------------------------- what they work on */

static struct {
    unsigned char at[1 << 16];
    size_t n;
    size_t read;
} file;

static int file_write(void *context, const void *from, size_t n)
{
    (void)context;
    memcpy(file.at + file.n, from, n);
    file.n += n;
    return 0;
}

static int file_read(void *context, void *out, size_t capacity, size_t *out_n)
{
    (void)context;
    *out_n = file.n - file.read < capacity ? file.n - file.read : capacity;
    memcpy(out, file.at + file.read, *out_n);
    file.read += *out_n;
    return 0;
}

static kvp_status load_nothing(void *out, size_t n, int peek)
{
    const kvp_source source = {NULL, file_read};
    kvp_snapshot_options options;
    file.read = 0;
    if (peek) {
        return kvp_snapshot_peek_sized(&source, out, n);
    }
    kvp_cache *cache;
    const kvp_config config = config_of(4, 4, 15);
    kvp_snapshot_options_init(&options);
    assert_ok(kvp_cache_create(&config, NULL, 0, &cache));
    const kvp_status status = kvp_snapshot_load_sized(cache, &options, &source, out, n);
    kvp_cache_destroy(cache);
    return status;
}

static int arena_read(void *context, uint64_t offset, void *out, size_t n)
{
    memcpy(out, (const char *)context + offset, n);
    return 0;
}

static kvp_status look(void *out, size_t n)
{
    kvp_config config;
    size_t arena_bytes;
    assert_ok(kvp_cache_config(CACHE, &config));
    assert_ok(kvp_cache_bytes(&config, &arena_bytes));
    const kvp_arena_source source = {CACHE, arena_bytes, arena_read};
    return kvp_arena_inspect_sized(&source, NULL, out, n);
}

static kvp_status apply(void *out, size_t n)
{
    static unsigned char message[4096];
    static kvp_wire_mirror *mirror;
    const kvp_wire_step step = {.struct_size = sizeof(step), .flags = KVP_WIRE_FULL};
    kvp_wire_config config;
    size_t n_message;
    assert_ok(kvp_wire_config_of(CACHE, &config));
    kvp_wire_mirror_destroy(mirror); /* one that lasts as long as its news */
    assert_ok(kvp_wire_mirror_create(&config, NULL, 0, &mirror));
    assert_ok(kvp_wire_sender_encode(all.sender, &step, message, sizeof(message), &n_message));
    kvp_wire_news news;
    const kvp_status status = kvp_wire_mirror_apply_sized(mirror, message, n_message, out, n);
    if (status == KVP_OK) { /* pointers into the mirror: as offsets */
        memset(&news, 0, sizeof(news));
        memcpy(&news, out, n < sizeof(news) ? n : sizeof(news));
        const void **const pointers[] = {(const void **)&news.items, (const void **)&news.closed,
                                         (const void **)&news.copies, (const void **)&news.moves};
        for (int i = 0; i < 4; i++) {
            *pointers[i] = NULL;
        }
        memcpy(out, &news, n < sizeof(news) ? n : sizeof(news));
    }
    return status;
}

static kvp_status read_ticket(void *out, size_t n)
{
    static unsigned char ticket[1024];
    static size_t n_ticket;
    kvp_slot_run runs[8];
    if (n_ticket == 0) {
        uint64_t id;
        const kvp_receive receive = {
            .struct_size = sizeof(receive), .seq = all.seq, .end = KVP_END};
        assert_ok(
            kvp_receiver_reserve(all.receiver, &receive, ticket, sizeof(ticket), &n_ticket, &id));
    }
    return kvp_ticket_read_sized(ticket, n_ticket, out, n, runs, 8);
}

static int begin(void **state)
{
    (void)state;
    kvp_config config = config_of(4, 4, 15);
    kvp_sched_config sched;
    kvp_wire_config wire;
    kvp_transfer_config transfer;
    config.quotas = 1;
    all.w = make_world(&config);
    config.host_blocks = 4;
    config.max_loads = 2;
    all.lender = make_world(&config);
    leave_cached(&all.w, ints(0), 8);
    kvp_snapshot_options options;
    kvp_snapshot_options_init(&options);
    assert_ok(kvp_snapshot_save(CACHE, &options, &(kvp_sink){NULL, file_write}));
    all.seq = open_seq(&all.w, ints(20), 7, NULL);
    kvp_sched_config_init(&sched);
    sched.max_running = 4;
    assert_ok(kvp_sched_create(&sched, CACHE, NULL, 0, &all.sched));
    const kvp_prompt prompt = prompt_of(ints(40), 4);
    const kvp_submission submission = {
        .struct_size = sizeof(submission), .prompt = &prompt, .ns = all.w.ns, .max_new_tokens = 2};
    assert_ok(kvp_sched_submit(all.sched, &submission, &all.request, NULL));
    kvp_layout_init(&all.layout);
    all.layout.type = KVP_F32;
    all.layout.n_blocks = 16;
    all.layout.block_tokens = 4;
    all.layout.n_layers = LAYERS;
    all.layout.n_heads = HEADS;
    all.layout.k.size = all.layout.v.size = DIMS;
    assert_ok(kvp_layout_arrange(&all.layout, KVP_ORDER_CPU, NULL));
    assert_ok(kvp_memory_create(&all.layout, NULL, &all.memory));
    assert_ok(kvp_memory_layer(all.memory, 0, &all.layer));
    assert_ok(kvp_wire_config_of(CACHE, &wire));
    assert_ok(kvp_wire_sender_create(&wire, CACHE, NULL, 0, &all.sender));
    assert_ok(kvp_wire_mirror_create(&wire, NULL, 0, &all.mirror));
    assert_ok(kvp_loopback_create(4096, 2, &all.loopback, all.ends));
    kvp_transfer_config_init(&transfer);
    transfer.cache = CACHE;
    transfer.memory = all.memory;
    assert_ok(kvp_receiver_create(&transfer, &all.receiver));
    return 0;
}

static int end(void **state)
{
    (void)state;
    kvp_receiver_destroy(all.receiver);
    kvp_loopback_destroy(all.loopback);
    kvp_wire_mirror_destroy(all.mirror);
    kvp_wire_sender_destroy(all.sender);
    kvp_memory_destroy(all.memory);
    kvp_sched_destroy(all.sched);
    close_seq(&all.w, all.seq);
    end_world(&all.lender);
    end_world(&all.w);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_which_sizes_there_are),
        cmocka_unit_test(test_structs_that_are_given_to_a_program),
        cmocka_unit_test(test_structs_of_the_core),
        cmocka_unit_test(test_structs_of_metadata),
        cmocka_unit_test(test_structs_that_are_written),
        cmocka_unit_test(test_structs_above_the_core),
        cmocka_unit_test(test_structs_of_attention),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
