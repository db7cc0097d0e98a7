/* A struct that a caller fills has its size in the first field. Each call takes such a struct in
 * the library's size, and refuses every other size with KVP_E_ARG: a forgotten init, or a program
 * that was built with other headers. */
#include "world.h"

#include <kvpager/attention.h>
#include <kvpager/memory.h>
#include <kvpager/sched.h>
#include <kvpager/snapshot.h>
#include <kvpager/transfer.h>
#include <kvpager/trees.h>
#include <kvpager/meta.h>
#include <kvpager/wire.h>
#include <stdlib.h>
#include <string.h>

enum { ROOM = 4096, LAYERS = 2, HEADS = 2, DIMS = 8 };

static struct {
    world w;
    world lender; /* with a host tier */
    kvp_seq seq;
    kvp_sched *sched;
    kvp_memory *memory;
    kvp_layout layout;
    kvp_wire_sender *sender;
    kvp_receiver *receiver;
    kvp_loopback *loopback;
    kvp_link ends[2];
    kvp_layer layer;
} all;

#define CACHE all.w.cache
static int32_t to_fill[1];

/* A struct that a call takes: one that is right, its size, and the call. */
typedef struct taken {
    const char *name;
    const void *good;
    size_t size;
    kvp_status (*call)(void *in);
} taken;

static void check_taken(const taken *t)
{
    static const size_t wrong[] = {0, 1, 4, 8, ROOM, 1 << 20, SIZE_MAX};
    static _Alignas(64) unsigned char in[ROOM];
    print_message("%s\n", t->name);
    memset(in, 0, sizeof(in));
    memcpy(in, t->good, t->size);
    assert_int_not_equal(t->call(in), KVP_E_ARG);
    for (size_t size = t->size - 24; size <= t->size + 24; size++) {
        memcpy(in, t->good, t->size); /* calls write into some */
        memcpy(in, &size, sizeof(size));
        if (size != t->size)
            assert_status(KVP_E_ARG, t->call(in));
    }
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
        memcpy(in, &wrong[i], sizeof(wrong[i]));
        if (wrong[i] != t->size)
            assert_status(KVP_E_ARG, t->call(in));
    }
}

#define TAKES(type, call_, ...)                                                                    \
    check_taken(                                                                                   \
        &(taken){#type, &(type){.struct_size = sizeof(type), __VA_ARGS__}, sizeof(type), call_})

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
    if (status == KVP_OK)
        assert_ok(kvp_seq_close(CACHE, opened, NULL));
    return status;
}

#define FILL(kind)                                                                                 \
    kvp_meta_fill_##kind(                                                                          \
        CACHE, &(kvp_meta_batch){sizeof(kvp_meta_batch), 1, 0, &all.seq, NULL, NULL}, in)
CALL(config, kvp_cache_bytes(in, &bytes))
CALL(config_check, kvp_config_check(in, NULL))
CALL(prompt, open_prompt(in))
CALL(prompt_match, kvp_cache_match(CACHE, all.w.ns, in, &(kvp_open_info){0}))
CALL(prompt_can, kvp_cache_can_open(CACHE, all.w.ns, in, &admission))
CALL(prompt_check, kvp_prompt_check(CACHE, all.w.ns, in, NULL))
CALL(batch, kvp_seq_extend_many(CACHE, in))
CALL(batch_fill, kvp_seq_fill_many(CACHE, in))
CALL(batch_can, kvp_cache_can_extend(CACHE, in, &admission))
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
    if (status == KVP_OK && known.number != 0)
        assert_ok(kvp_load_cancel(all.lender.cache, known.number));
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
    if (status == KVP_OK)
        kvp_memory_destroy(memory);
    return status;
}

static kvp_status take_layout(void *in)
{
    kvp_memory *memory;
    const kvp_status status = kvp_memory_create(in, NULL, &memory);
    if (status == KVP_OK)
        kvp_memory_destroy(memory);
    return status;
}

static kvp_status take_copier(void *in)
{
    kvp_copier *copier;
    const kvp_status status = kvp_copier_create(in, &copier);
    if (status == KVP_OK)
        kvp_copier_destroy(copier);
    return status;
}

static kvp_status take_transfer(void *in)
{
    kvp_receiver *receiver;
    const kvp_status status = kvp_receiver_create(in, &receiver);
    if (status == KVP_OK)
        kvp_receiver_destroy(receiver);
    return status;
}

static kvp_status take_link(void *in)
{
    uint32_t link;
    const kvp_status status = kvp_receiver_attach(all.receiver, in, &link);
    if (status == KVP_OK)
        assert_ok(kvp_receiver_detach(all.receiver, link));
    return status;
}

static kvp_status take_submission(void *in)
{
    kvp_request request;
    const kvp_status status = kvp_sched_submit(all.sched, in, &request, NULL);
    if (status == KVP_OK)
        assert_ok(kvp_sched_abort(all.sched, request));
    return status;
}

CALL(append, kvp_append_bytes(in, &bytes))
CALL(append_check, kvp_append_check(in, NULL))
CALL(attention, kvp_attention_bytes(in, &bytes))
CALL(attention_check, kvp_attention_check(in, NULL))
CALL(merge, kvp_merge_run(in))

TEST(test_structs_of_the_core)
{
    static const uint32_t none[] = {0};
    kvp_config config = config_of(4, 4, 7);
    check_taken(&(taken){"kvp_config", &config, sizeof(config), take_config});
    check_taken(&(taken){"kvp_config_check", &config, sizeof(config), take_config_check});
    static kvp_status (*const prompts[])(void *) = {take_prompt, take_prompt_match, take_prompt_can,
                                                    take_prompt_check};
    for (int i = 0; i < 4; i++)
        TAKES(kvp_prompt, prompts[i], .tokens = ints(70), .n_tokens = 5);
    static kvp_status (*const batches[])(void *) = {take_batch, take_batch_fill, take_batch_can,
                                                    take_batch_tree};
    for (int i = 0; i < 4; i++)
        TAKES(kvp_batch, batches[i], .n_seqs = 1, .seqs = &no_seq, .n_tokens = none);
    TAKES(kvp_accept, take_accept, .n_seqs = 1, .seqs = &no_seq, .leaves = arrays[0]);
    TAKES(kvp_load, take_load, .entries = {0, 1}, .blocks = to_fill);
    TAKES(kvp_snapshot_options, take_snapshot, .model = NULL);
}

TEST(test_structs_of_metadata)
{
    kvp_meta_level levels[1] = {{arrays[0], arrays[1], arrays[2], arrays[3], 0, 0}};
    uint32_t had[4] = {0};
    uint64_t versions[2] = {0};
    TAKES(kvp_meta_batch, take_meta_batch, .n_seqs = 1, .seqs = &all.seq);
    TAKES(kvp_meta_dense, take_dense, .row_stride = 8);
    TAKES(kvp_meta_csr, take_csr, .max_entries = 0);
    TAKES(kvp_meta_windowed, take_windowed, .max_entries = 0);
    TAKES(kvp_meta_tree, take_tree, .max_nodes = 0);
    TAKES(kvp_meta_trtllm, take_trtllm, .layers_per_block = 1, .row_stride = 8);
    TAKES(kvp_meta_delta, take_delta, .max_entries = 64, .had_version = versions, .had_blocks = had,
          .version = versions + 1, .blocks = had + 2, .indptr = arrays[0], .start = arrays[1],
          .entries = arrays[2]);
    TAKES(kvp_meta_cascade, take_cascade, .max_levels = 1, .max_entries = 64, .order = arrays[4],
          .levels = levels);
    TAKES(kvp_meta_dense, take_place_dense, .row_stride = 0);
    TAKES(kvp_meta_csr, take_place_csr, .max_entries = 0);
    TAKES(kvp_meta_windowed, take_place_windowed, .max_entries = 0);
    TAKES(kvp_meta_tree, take_place_tree, .max_nodes = 0);
}

TEST(test_reserved_fields_of_metadata)
{
    kvp_meta_level levels[1] = {{arrays[0], arrays[1], arrays[2], arrays[3], 0, 0}};
    uint32_t had[4] = {0};
    uint64_t versions[2] = {0};
    kvp_meta_delta delta = {.struct_size = sizeof(delta),
                            .had_version = versions,
                            .had_blocks = had,
                            .version = versions + 1,
                            .blocks = had + 2,
                            .indptr = arrays[0],
                            .start = arrays[1]};
    kvp_meta_cascade cascade = {.struct_size = sizeof(cascade),
                                .max_levels = 1,
                                .max_entries = 64,
                                .order = arrays[4],
                                .levels = levels};
    assert_ok(take_delta(&delta)); /* asks */
    assert_ok(take_cascade(&cascade));
    delta.reserved = cascade.reserved = 1;
    assert_status(KVP_E_ARG, take_delta(&delta));
    assert_status(KVP_E_ARG, take_cascade(&cascade));
}

TEST(test_structs_above_the_core)
{
    kvp_sched_config sched;
    kvp_wire_config wire;
    kvp_memory_options options;
    kvp_copier_config copier;
    kvp_transfer_config transfer;
    kvp_sched_config_init(&sched);
    sched.max_running = 4;
    check_taken(&(taken){"kvp_sched_config", &sched, sizeof(sched), take_sched_config});
    check_taken(&(taken){"kvp_sched_config", &sched, sizeof(sched), take_sched_check});
    kvp_wire_config_init(&wire);
    check_taken(&(taken){"kvp_wire_config", &wire, sizeof(wire), take_wire_config});
    check_taken(&(taken){"kvp_wire_config", &wire, sizeof(wire), take_wire_sender});
    check_taken(&(taken){"kvp_wire_config", &wire, sizeof(wire), take_wire_check});
    TAKES(kvp_wire_step, take_wire_step, .flags = KVP_WIRE_FULL);
    check_taken(&(taken){"kvp_layout", &all.layout, sizeof(all.layout), take_layout});
    check_taken(&(taken){"kvp_layout", &all.layout, sizeof(all.layout), take_layout_check});
    check_taken(&(taken){"kvp_layout", &all.layout, sizeof(all.layout), take_layout_slice});
    check_taken(&(taken){"kvp_layout", &all.layout, sizeof(all.layout), take_layout_bytes});
    kvp_memory_options_init(&options);
    check_taken(&(taken){"kvp_memory_options", &options, sizeof(options), take_options});
    kvp_copier_config_init(&copier);
    copier.device = &all.memory;
    check_taken(&(taken){"kvp_copier_config", &copier, sizeof(copier), take_copier});
    kvp_transfer_config_init(&transfer);
    transfer.cache = CACHE;
    transfer.memory = all.memory;
    check_taken(&(taken){"kvp_transfer_config", &transfer, sizeof(transfer), take_transfer});
    check_taken(&(taken){"kvp_link", &all.ends[0], sizeof(kvp_link), take_link});
    TAKES(kvp_receive, take_receive, .seq = no_seq, .end = KVP_END);
    const kvp_prompt prompt = prompt_of(ints(90), 4);
    TAKES(kvp_submission, take_submission, .prompt = &prompt, .ns = all.w.ns, .max_new_tokens = 4);
}

TEST(test_structs_of_attention)
{
    static const int32_t start[] = {0, 1}, lengths[] = {1}, blocks[] = {1};
    static float row[LAYERS * HEADS * DIMS];
    const kvp_attention_level level = {
        .n_rows = 1, .n_blocks = 1, .blocks = blocks, .row_stride = 1, .lengths = lengths};
    kvp_append append;
    kvp_attention attention;
    kvp_merge merge;
    kvp_append_init(&append);
    append.layer = &all.layer;
    check_taken(&(taken){"kvp_append", &append, sizeof(append), take_append});
    check_taken(&(taken){"kvp_append", &append, sizeof(append), take_append_check});
    kvp_attention_init(&attention);
    attention.layer = &all.layer;
    attention.n_seqs = attention.n_tokens = 1;
    attention.n_heads = HEADS;
    attention.query_start = start;
    attention.levels = &level;
    check_taken(&(taken){"kvp_attention", &attention, sizeof(attention), take_attention});
    check_taken(&(taken){"kvp_attention", &attention, sizeof(attention), take_attention_check});
    const kvp_partial partial = {.out = {.data = row}, .lse = {.data = row + DIMS}};
    kvp_merge_init(&merge);
    merge.n_partials = merge.n_tokens = merge.n_heads = 1;
    merge.size = DIMS;
    merge.partials = &partial;
    merge.out.data = row + 2 * DIMS;
    check_taken(&(taken){"kvp_merge", &merge, sizeof(merge), take_merge});
}

/* ------------------------------------------------------------------------- what they work on */

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
    all.seq = open_seq(&all.w, ints(20), 7, NULL);
    kvp_sched_config_init(&sched);
    sched.max_running = 4;
    assert_ok(kvp_sched_create(&sched, CACHE, NULL, 0, &all.sched));
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
    kvp_wire_sender_destroy(all.sender);
    kvp_memory_destroy(all.memory);
    kvp_sched_destroy(all.sched);
    close_seq(&all.w, all.seq);
    end_world(&all.lender);
    end_world(&all.w);
    return 0;
}

TEST_MAIN(begin, end)
