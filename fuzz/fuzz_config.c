/* Any values in the fields of configurations: of a cache, of a scheduler and of worker messages
 * over it, of a layout. A configuration of a small cache is edited: a field, a way to draw its
 * value, the value. What is refused must be what the headers say is refused. What is taken must fit
 * memory of exactly the size that was asked for, whatever it contains, and be good for calls. */
#define _POSIX_C_SOURCE 200112L /* posix_memalign */

#include <kvpager/all.h>
#include <kvpager/memory.h>
#include <kvpager/sched.h>
#include <kvpager/wire.h>

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "require.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { LINE = 64, MAX_EDITS = 24, N_TOKENS = 48, CAPACITY = 512, MESSAGE_BYTES = 1 << 16 };

/* The largest struct_size. */
enum { LONGEST = 4096 };

/* Larger ones are only measured. */
#define MAX_BYTES ((size_t)1 << 21)

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* The bytes, used up from the front; 0 when there are none left. */
struct input {
    const uint8_t *at;
    const uint8_t *end;
};

struct field {
    size_t offset;
    size_t size;
};

#define FIELD(type, name)                                                                          \
    {                                                                                              \
        offsetof(type, name), sizeof(((type *)0)->name)                                            \
    }

static uint32_t take(struct input *in, uint32_t below)
{
    return in->at < in->end ? *in->at++ % below : 0;
}

static uint64_t take_bytes(struct input *in, uint32_t n)
{
    uint64_t value = 0;
    for (uint32_t i = 0; i < n; i++)
        value |= (uint64_t)take(in, 256) << 8 * i;
    return value;
}

static uint64_t take_value(struct input *in)
{
    const uint32_t way = take(in, 8);
    switch (way) {
    case 0:
    case 1:
    case 2: return take(in, 256);
    case 3: return take_bytes(in, 2);
    case 4: return take_bytes(in, 4);
    case 5: return take_bytes(in, 8);
    default: /* a power of two, or beside it */
        return ((uint64_t)1 << take(in, 64)) + take(in, 3) - 1;
    }
}

/* Overwrites fields of a configuration. */
static void edit(struct input *in, void *config, const struct field *fields, size_t n_fields)
{
    for (uint32_t n = take(in, MAX_EDITS); n > 0; n--) {
        const struct field *field = &fields[take(in, (uint32_t)n_fields)];
        const uint64_t value = take_value(in);
        const uint32_t low = (uint32_t)value;
        memcpy((char *)config + field->offset,
               field->size == sizeof low ? (const void *)&low : (const void *)&value, field->size);
    }
}

/* What the library must take a struct for, by docs/BUILDING.md; 0: it refuses it. Nothing but zeros
 * lies behind it, see ROOM. */
static int is_seen_as(const void *given, const void *defaults, void *seen, size_t size)
{
    size_t n;
    memcpy(&n, given, sizeof n);
    if (n < sizeof n || n > LONGEST || n % 4 != 0)
        return 0;
    memcpy(seen, defaults, size);
    memcpy(seen, given, n < size ? n : size);
    memcpy(seen, &size, sizeof size);
    return 1;
}

/* A configuration of any struct_size. */
#define ROOM(type)                                                                                 \
    struct {                                                                                       \
        type config;                                                                               \
        char zeros[LONGEST];                                                                       \
    }

/* Memory of exactly this size, full of anything. */
static void *memory_of(size_t n_bytes)
{
    void *memory;
    require(posix_memalign(&memory, LINE, n_bytes) == 0);
    memset(memory, 0xA5, n_bytes);
    return memory;
}

/* ----------------------------------------------------------------------------------- the cache */

static const struct field cache_fields[] = {
    FIELD(kvp_config, block_tokens),
    FIELD(kvp_config, unit_tokens),
    FIELD(kvp_config, n_blocks),
    FIELD(kvp_config, max_seqs),
    FIELD(kvp_config, max_seq_tokens),
    FIELD(kvp_config, max_namespaces),
    FIELD(kvp_config, n_nodes),
    FIELD(kvp_config, max_unit_keys),
    FIELD(kvp_config, max_copies),
    FIELD(kvp_config, commit_policy),
    FIELD(kvp_config, full_hit),
    FIELD(kvp_config, prefix_cache),
    FIELD(kvp_config, hash_seed),
    FIELD(kvp_config, n_uncached_tokens),
    FIELD(kvp_config, test_hash_bits),
    FIELD(kvp_config, host_blocks),
    FIELD(kvp_config, keep_evicted),
    FIELD(kvp_config, steps),
    FIELD(kvp_config, max_steps_out),
    FIELD(kvp_config, max_events),
    FIELD(kvp_config, max_tree_tokens),
    FIELD(kvp_config, n_groups),
    FIELD(kvp_config, quotas),
    FIELD(kvp_config, groups[0].sink_tokens),
    FIELD(kvp_config, groups[0].recent_tokens),
    FIELD(kvp_config, groups[1].sink_tokens),
    FIELD(kvp_config, groups[1].recent_tokens),
    FIELD(kvp_config, groups[0].block_tokens),
    FIELD(kvp_config, groups[1].block_tokens),
    FIELD(kvp_config, groups[7].block_tokens),
    FIELD(kvp_config, groups[7].sink_tokens),
    FIELD(kvp_config, groups[7].recent_tokens),
    FIELD(kvp_config, watermark),
    FIELD(kvp_config, struct_size),
    FIELD(kvp_config, policy),
    FIELD(kvp_config, retain_tokens),
};

static int is_within(uint64_t value, uint64_t least, uint64_t most)
{
    return least <= value && value <= most;
}

/* Windows of groups that there are, and of no others; sinks with a window only. */
static int windows_are_right(const kvp_config *c)
{
    for (uint32_t g = 0; g < KVP_GROUPS_MAX; g++) {
        const kvp_group *w = &c->groups[g];
        if (w->sink_tokens > 0 && w->recent_tokens == 0)
            return 0;
        if (g >= c->n_groups && (w->recent_tokens > 0 || w->block_tokens > 0))
            return 0;
    }
    return is_within(c->n_groups, 1, KVP_GROUPS_MAX);
}

/* S of a group. */
static uint32_t size_of(const kvp_config *c, uint32_t g)
{
    return c->groups[g].block_tokens == 0 ? c->block_tokens : c->groups[g].block_tokens;
}

/* Blocks of whole units; and the pools have fewer than 2^32 - 1 of those. */
static int sizes_are_right(const kvp_config *c, uint32_t unit)
{
    const uint64_t n_blocks = (uint64_t)c->n_blocks + c->host_blocks;
    for (uint32_t g = 0; g < c->n_groups; g++) {
        const uint32_t S = size_of(c, g);
        if (S > KVP_BLOCK_TOKENS_MAX || S % unit != 0 || n_blocks * (S / unit) >= UINT32_MAX)
            return 0;
    }
    return 1;
}

/* The learned policy is for one group that keeps all, for KVP_ADOPT, and without quotas. */
static int policy_is_right(const kvp_config *c)
{
    return c->policy == KVP_POLICY_LRU ||
           (c->policy == KVP_POLICY_LEARNED && c->n_groups == 1 && c->quotas == 0 &&
            c->groups[0].recent_tokens == 0 && size_of(c, 0) == c->block_tokens &&
            c->commit_policy == KVP_ADOPT);
}

/* The ranges of cache.h, field by field. */
static int cache_is_right(const kvp_config *c)
{
    const uint32_t unit = c->unit_tokens == 0 ? c->block_tokens : c->unit_tokens;
    return is_within(c->block_tokens, 1, KVP_BLOCK_TOKENS_MAX) && unit <= c->block_tokens &&
           c->block_tokens % unit == 0 && is_within(c->n_blocks, 2, INT32_MAX) &&
           is_within(c->max_seqs, 1, 1u << 20) && is_within(c->max_seq_tokens, 1, INT32_MAX) &&
           is_within(c->max_namespaces, 1, 65536) &&
           (c->n_nodes == 0 || is_within(c->n_nodes, c->max_namespaces + 1, INT32_MAX - 1)) &&
           c->max_unit_keys <= 64 && c->commit_policy <= KVP_KEEP &&
           c->full_hit <= KVP_FULL_HIT_RECOMPUTE && c->prefix_cache <= 1 && c->watermark >= 0 &&
           c->watermark < 1 && (c->n_uncached_tokens == 0 || c->uncached_tokens != NULL) &&
           c->test_hash_bits <= 32 &&
           (c->host_blocks == 0 || is_within(c->host_blocks, 2, INT32_MAX)) &&
           c->keep_evicted <= 1 && c->quotas <= 1 && c->steps <= KVP_STEPS_OVERLAPPED &&
           is_within(c->max_steps_out, 1, 64) && c->max_tree_tokens <= KVP_TREE_TOKENS_MAX &&
           (c->retain_tokens == KVP_RETAIN_PROMPTS ||
            (c->retain_tokens <= INT32_MAX && c->retain_tokens % unit == 0)) &&
           windows_are_right(c) && policy_is_right(c) && sizes_are_right(c, unit);
}

/* What the header says that the arena holds at least: rows, trees' tokens left out. */
static double least_bytes(const kvp_config *c)
{
    const double n_blocks = (double)c->n_blocks + c->host_blocks;
    double rows = 0, S = 1;
    for (uint32_t g = 0; g < c->n_groups; g++) {
        rows += (double)kvp_blocks_for_tokens(size_of(c, g), c->max_seq_tokens);
        S = size_of(c, g) > S ? size_of(c, g) : S;
    }
    const double tokens = c->n_nodes == 0 && c->prefix_cache ? n_blocks * S : n_blocks;
    return 4 * (c->max_seqs * rows + tokens) + 4.0 * c->n_uncached_tokens;
}

static kvp_config small_cache(void)
{
    kvp_config config;
    kvp_config_init(&config);
    config.block_tokens = 4;
    config.n_blocks = 24;
    config.max_seqs = 4;
    config.max_seq_tokens = 64;
    config.max_namespaces = 2;
    return config;
}

static kvp_config take_cache(struct input *in)
{
    static const int32_t tokens[] = {3, 1, 2, 1};
    static const double shares[] = {0, 0.1, 0.999999, 1, -0.0, -1e-300};
    kvp_config config = small_cache();
    if (take(in, 4) == 0)
        config.watermark = shares[take(in, COUNT(shares))];
    edit(in, &config, cache_fields, COUNT(cache_fields));
    if (config.n_uncached_tokens <= COUNT(tokens) && take(in, 8) != 0)
        config.uncached_tokens = tokens;
    else if (config.n_uncached_tokens > COUNT(tokens) && take(in, 2) == 0)
        config.n_uncached_tokens = COUNT(tokens);
    return config;
}

/* Whatever memory is not right is refused, and not written to. */
static void refuse_memory(const kvp_config *config, char *arena, size_t n_bytes)
{
    kvp_cache *cache = NULL;
    require(kvp_cache_create(config, arena, n_bytes - 1, &cache) == KVP_E_TOO_SMALL);
    require(kvp_cache_create(config, arena + 1, n_bytes, &cache) == KVP_E_ARG);
    require(cache == NULL && arena[0] == (char)0xA5);
}

/* The configuration, as the cache resolved it, is that of an equal cache. */
static void check_config(const kvp_cache *cache, size_t n_bytes)
{
    kvp_config resolved;
    size_t again;
    require(kvp_cache_config_get(cache, &resolved) == KVP_OK && cache_is_right(&resolved));
    require(kvp_cache_bytes(&resolved, &again) == KVP_OK && again == n_bytes);
}

/* Some calls; refusals are part of it. */
static void use_cache(kvp_cache *cache, struct input *in)
{
    int32_t tokens[N_TOKENS];
    kvp_ns ns;
    kvp_seq seq, child;
    kvp_prompt prompt = {.struct_size = sizeof prompt, .tokens = tokens};
    require(kvp_ns_open(cache, "a", 1, &ns) == KVP_OK);
    for (uint32_t i = 0; i < N_TOKENS; i++)
        tokens[i] = (int32_t)take(in, 4);
    for (uint32_t n = 1 + take(in, 3); n > 0; n--) {
        prompt.n_tokens = 1 + take(in, N_TOKENS);
        if (kvp_seq_open(cache, ns, &prompt, &seq, NULL) != KVP_OK)
            continue;
        require(kvp_seq_commit(cache, seq, prompt.n_tokens) == KVP_OK);
        const kvp_status status = kvp_seq_fork(cache, seq, prompt.n_tokens, 0, &child);
        (void)kvp_seq_extend(cache, seq, tokens, 1 + take(in, 8), 0);
        (void)kvp_seq_swap_out(cache, &seq, 1, NULL);
        if (status == KVP_OK)
            require(kvp_seq_close(cache, child, NULL) == KVP_OK);
        require(kvp_seq_close(cache, seq, NULL) == KVP_OK);
    }
    require(kvp_cache_check(cache, 3, NULL) == KVP_OK);
    require(kvp_cache_reset(cache) == KVP_OK);
    require(kvp_ns_close(cache, ns) == KVP_OK);
}

/* ------------------------------------------------------------------------------- the scheduler */

static const struct field sched_fields[] = {
    FIELD(kvp_sched_config, max_requests),    FIELD(kvp_sched_config, max_samples),
    FIELD(kvp_sched_config, max_running),     FIELD(kvp_sched_config, step_tokens),
    FIELD(kvp_sched_config, chunk_tokens),    FIELD(kvp_sched_config, max_passed_over),
    FIELD(kvp_sched_config, max_tries),       FIELD(kvp_sched_config, preempt),
    FIELD(kvp_sched_config, swap_ahead),      FIELD(kvp_sched_config, arena_tokens),
    FIELD(kvp_sched_config, swap_cost),       FIELD(kvp_sched_config, swap_block_cost),
    FIELD(kvp_sched_config, recompute_cost),  FIELD(kvp_sched_config, recompute_token_cost),
    FIELD(kvp_sched_config, max_loading),     FIELD(kvp_sched_config, struct_size),
    FIELD(kvp_sched_config, wait_for_prefix), FIELD(kvp_sched_config, free_target),
    FIELD(kvp_sched_config, draft_tokens),    FIELD(kvp_sched_config, state_rings),
    FIELD(kvp_sched_config, swap_state_cost), FIELD(kvp_sched_config, make_way),
};

/* The ranges of sched.h. */
static int sched_is_right(const kvp_sched_config *s, const kvp_cache *cache)
{
    kvp_config c;
    require(kvp_cache_config_get(cache, &c) == KVP_OK);
    const uint32_t samples = s->max_samples == 0 ? s->max_requests : s->max_samples;
    const uint32_t running = s->max_running == 0 ? c.max_seqs : s->max_running;
    return is_within(s->max_requests, 1, 1u << 20) &&
           is_within(samples, s->max_requests, 1u << 20) && running <= c.max_seqs &&
           running <= c.max_copies && s->draft_tokens <= KVP_SCHED_DRAFTS_MAX &&
           s->state_rings <= (c.state_slots > 0 && s->draft_tokens > 0) &&
           is_within(s->step_tokens, running * (1 + s->draft_tokens), 1u << 24) &&
           is_within(s->max_tries, 1, s->max_requests) && s->preempt <= KVP_PREEMPT_CHEAPER &&
           s->swap_ahead <= 1 && s->make_way <= 1 && s->max_loading <= s->max_requests &&
           s->wait_for_prefix <= 1 && s->free_target <= (c.n_blocks - 1 + 63) / 64 &&
           s->arena_tokens <= (uint64_t)KVP_SCHED_PAGE_TOKENS * INT32_MAX;
}

/* One request, to its end or as far as 32 steps go. */
static void use_sched(kvp_sched *sched, kvp_cache *cache, kvp_ns ns, struct input *in)
{
    const int32_t tokens[N_TOKENS] = {1, 2, 3};
    int32_t sampled[CAPACITY] = {0};
    uint8_t ended[CAPACITY] = {0};
    kvp_copy copies[CAPACITY];
    kvp_step step;
    kvp_step_end end;
    uint32_t n_copies;
    kvp_request request;
    kvp_prompt prompt = {.struct_size = sizeof prompt, .tokens = tokens};
    kvp_submission submission = {.struct_size = sizeof submission, .prompt = &prompt, .ns = ns};
    prompt.n_tokens = 1 + take(in, N_TOKENS);
    submission.max_new_tokens = 1 + take(in, 8);
    submission.n_samples = take(in, 4);
    if (kvp_sched_submit(sched, &submission, &request, NULL) != KVP_OK)
        return;
    for (uint32_t i = 0; i < 32; i++) {
        require(kvp_sched_step(sched, &step) == KVP_OK);
        if (kvp_plan_take(cache, copies, CAPACITY, &n_copies) != KVP_OK || step.n_seqs == 0 ||
            step.n_sampled > CAPACITY)
            return;
        require(kvp_sched_finish(sched, sampled, ended, &end) == KVP_OK);
        require(kvp_sched_check(sched, NULL) == KVP_OK);
    }
}

static void run_sched(kvp_cache *cache, struct input *in)
{
    ROOM(kvp_sched_config) room = {.zeros = {0}};
    kvp_sched_config *config = &room.config;
    kvp_sched_config defaults, seen;
    kvp_sched *sched = NULL;
    kvp_ns ns;
    size_t n_bytes;
    kvp_sched_config_init(&defaults);
    *config = defaults;
    config->max_requests = 4;
    config->step_tokens = 64;
    config->arena_tokens = 512;
    edit(in, config, sched_fields, COUNT(sched_fields));
    const int is_right =
        is_seen_as(config, &defaults, &seen, sizeof seen) && sched_is_right(&seen, cache);
    const kvp_status status = kvp_sched_bytes(config, cache, &n_bytes);
    require((status == KVP_E_ARG) == !is_right);
    if (status != KVP_OK || n_bytes > MAX_BYTES)
        return;
    char *arena = memory_of(n_bytes);
    require(kvp_sched_create(config, cache, arena, n_bytes - 1, &sched) == KVP_E_TOO_SMALL);
    require(kvp_sched_create(config, cache, arena, n_bytes, &sched) == KVP_OK);
    require(kvp_ns_open(cache, "b", 1, &ns) == KVP_OK);
    use_sched(sched, cache, ns, in);
    kvp_sched_destroy(sched);
    free(arena);
    require(kvp_cache_check(cache, 3, NULL) == KVP_OK);
}

/* ----------------------------------------------------------------------------- worker messages */

static const struct field wire_fields[] = {
    FIELD(kvp_wire_config, block_tokens),    FIELD(kvp_wire_config, n_blocks),
    FIELD(kvp_wire_config, host_blocks),     FIELD(kvp_wire_config, max_seqs),
    FIELD(kvp_wire_config, max_row_blocks),  FIELD(kvp_wire_config, max_step_tokens),
    FIELD(kvp_wire_config, max_copies),      FIELD(kvp_wire_config, epoch),
    FIELD(kvp_wire_config, n_groups),        FIELD(kvp_wire_config, max_tree_tokens),
    FIELD(kvp_wire_config, max_moves),       FIELD(kvp_wire_config, struct_size),
    FIELD(kvp_wire_config, state_slots),     FIELD(kvp_wire_config, host_state_slots),
    FIELD(kvp_wire_config, group_tokens[0]), FIELD(kvp_wire_config, group_tokens[7]),
};

/* A message of no sequences goes from the one to the other. */
static void use_wire(const kvp_wire_config *config, const kvp_cache *cache, char *of_sender,
                     size_t n_sender, char *of_mirror, size_t n_mirror)
{
    static uint8_t message[MESSAGE_BYTES];
    size_t n_bytes;
    kvp_wire_sender *sender;
    kvp_wire_mirror *mirror;
    kvp_wire_news news;
    const kvp_wire_step step = {.struct_size = sizeof step};
    require(kvp_wire_mirror_create(config, of_mirror, n_mirror - 1, &mirror) == KVP_E_TOO_SMALL);
    require(kvp_wire_mirror_create(config, of_mirror, n_mirror, &mirror) == KVP_OK);
    if (kvp_wire_sender_create(config, cache, of_sender, n_sender, &sender) == KVP_OK) {
        require(kvp_wire_sender_encode(sender, &step, message, sizeof message, &n_bytes) == KVP_OK);
        require(kvp_wire_mirror_apply(mirror, message, n_bytes, &news) == KVP_OK);
        require(kvp_wire_mirror_digest(mirror) == kvp_wire_sender_digest(sender));
        kvp_wire_sender_destroy(sender);
    }
    kvp_wire_mirror_destroy(mirror);
}

static void run_wire(const kvp_cache *cache, struct input *in)
{
    ROOM(kvp_wire_config) room = {.zeros = {0}};
    kvp_wire_config *config = &room.config;
    size_t n_sender, n_mirror;
    require(kvp_wire_config_of(cache, config) == KVP_OK);
    edit(in, config, wire_fields, COUNT(wire_fields));
    const kvp_status status = kvp_wire_sender_bytes(config, &n_sender);
    require((kvp_wire_mirror_bytes(config, &n_mirror) == KVP_E_ARG) == (status == KVP_E_ARG));
    if (status != KVP_OK || kvp_wire_mirror_bytes(config, &n_mirror) != KVP_OK ||
        n_sender > MAX_BYTES || n_mirror > MAX_BYTES)
        return;
    char *of_sender = memory_of(n_sender), *of_mirror = memory_of(n_mirror);
    use_wire(config, cache, of_sender, n_sender, of_mirror, n_mirror);
    free(of_sender);
    free(of_mirror);
}

static void run_cache(struct input *in)
{
    kvp_cache *cache = NULL;
    size_t n_bytes;
    ROOM(kvp_config) room = {.config = take_cache(in)};
    const kvp_config *config = &room.config;
    kvp_config defaults, seen;
    kvp_config_init(&defaults);
    const int is_right = is_seen_as(config, &defaults, &seen, sizeof seen) && cache_is_right(&seen);
    const kvp_status status = kvp_cache_bytes(config, &n_bytes);
    require((status == KVP_E_ARG) == !is_right);
    require(status == KVP_OK || kvp_cache_create(config, NULL, 0, &cache) == status);
    if (status != KVP_OK)
        return;
    require((double)n_bytes >= least_bytes(&seen));
    if (n_bytes > MAX_BYTES)
        return;
    char *arena = memory_of(n_bytes);
    refuse_memory(config, arena, n_bytes);
    require(kvp_cache_create(config, arena, n_bytes, &cache) == KVP_OK);
    check_config(cache, n_bytes);
    use_cache(cache, in);
    run_wire(cache, in);
    run_sched(cache, in);
    kvp_cache_destroy(cache);
    free(arena);
}

/* ------------------------------------------------------------------------------------- layouts */

#define PART_FIELDS(part)                                                                          \
    FIELD(kvp_layout, part.size), FIELD(kvp_layout, part.run), FIELD(kvp_layout, part.tensor),     \
        FIELD(kvp_layout, part.tensor_step), FIELD(kvp_layout, part.tensor_bytes),                 \
        FIELD(kvp_layout, part.offset), FIELD(kvp_layout, part.layer_stride),                      \
        FIELD(kvp_layout, part.block_stride), FIELD(kvp_layout, part.token_stride),                \
        FIELD(kvp_layout, part.head_stride), FIELD(kvp_layout, part.run_stride)

/* The shape, which arrange begins with, then what it fills in. */
enum { N_SHAPE = 9 };
static const struct field layout_fields[] = {
    FIELD(kvp_layout, type),
    FIELD(kvp_layout, n_blocks),
    FIELD(kvp_layout, block_tokens),
    FIELD(kvp_layout, n_layers),
    FIELD(kvp_layout, n_heads),
    FIELD(kvp_layout, first_layer),
    FIELD(kvp_layout, first_head),
    FIELD(kvp_layout, k.size),
    FIELD(kvp_layout, v.size),
    FIELD(kvp_layout, n_tensors),
    PART_FIELDS(k),
    PART_FIELDS(v),
    PART_FIELDS(k_scales),
    PART_FIELDS(v_scales),
};

static const struct field options_fields[] = {
    FIELD(kvp_memory_options, pages),
    FIELD(kvp_memory_options, numa_node),
    FIELD(kvp_memory_options, touch),
    FIELD(kvp_memory_options, reserved),
};

static const struct field slice_fields[] = {
    FIELD(kvp_slice, first_layer),
    FIELD(kvp_slice, n_layers),
    FIELD(kvp_slice, first_head),
    FIELD(kvp_slice, n_heads),
};

static void take_order(struct input *in, char *out, uint32_t capacity)
{
    static const char letters[] = "NSHD2LxNSHDq";
    uint32_t n = take(in, capacity);
    for (uint32_t i = 0; i < n; i++)
        out[i] = letters[take(in, sizeof letters - 1)];
    out[n] = '\0';
}

static kvp_status arrange(struct input *in, kvp_layout *layout)
{
    static const char *const orders[] = {
        KVP_ORDER_VLLM_NHD, KVP_ORDER_VLLM_PAGED_K, KVP_ORDER_FLASHINFER_HND, KVP_ORDER_APART_NHD,
        KVP_ORDER_CELLS_V,  KVP_ORDER_TVM_NVSHMEM,  KVP_ORDER_TENSORRT_LLM,   KVP_ORDER_CPU};
    char k_order[9], v_order[9];
    if (take(in, 4) != 0)
        return kvp_layout_arrange(layout, orders[take(in, COUNT(orders))], NULL);
    take_order(in, k_order, sizeof k_order);
    take_order(in, v_order, sizeof v_order);
    return kvp_layout_arrange(layout, k_order, take(in, 2) ? v_order : NULL);
}

/* Of a layout that was refused nothing is made. */
static void make_memory(struct input *in, const kvp_layout *layout, kvp_status checked)
{
    kvp_memory_options options;
    kvp_memory *memory = NULL;
    kvp_layout described;
    kvp_memory_options_init(&options);
    edit(in, &options, options_fields, COUNT(options_fields));
    if (checked == KVP_OK) {
        const kvp_part *parts[] = {&layout->k, &layout->v, &layout->k_scales, &layout->v_scales};
        for (size_t i = 0; i < COUNT(parts); i++)
            if (parts[i]->size > 0 && parts[i]->tensor_bytes > MAX_BYTES / 64)
                return;
        if (layout->n_tensors > 64)
            return;
    }
    const kvp_status status = kvp_memory_create(layout, &options, &memory);
    require(checked == KVP_OK || status == KVP_E_ARG);
    if (status != KVP_OK)
        return;
    require(kvp_memory_describe(memory, &described, NULL) == KVP_OK);
    require(memcmp(&described, layout, sizeof described) == 0);
    kvp_memory_destroy(memory);
}

static void run_layout(struct input *in)
{
    kvp_layout layout, sliced;
    kvp_slice slice = {0, 1, 0, 1};
    kvp_why why;
    kvp_layout_init(&layout);
    layout.type = take(in, 5);
    layout.n_blocks = 8;
    layout.block_tokens = 4;
    layout.n_layers = 2;
    layout.n_heads = 2;
    layout.k.size = layout.v.size = 8;
    edit(in, &layout, layout_fields, N_SHAPE);
    if (arrange(in, &layout) != KVP_OK)
        return;
    require(kvp_layout_check(&layout, NULL) == KVP_OK);
    if (take(in, 2) != 0 && kvp_layout_add_scales(&layout, take(in, 2) ? "NL2H" : "2NH") == KVP_OK)
        require(kvp_layout_check(&layout, NULL) == KVP_OK);
    require(kvp_layout_block_bytes(&layout) > 0);
    edit(in, &layout, layout_fields, COUNT(layout_fields));
    const kvp_status checked = kvp_layout_check(&layout, &why);
    require((checked == KVP_OK) == (why.text[0] == '\0'));
    edit(in, &slice, slice_fields, COUNT(slice_fields));
    if (kvp_layout_slice(&layout, &slice, &sliced) == KVP_OK)
        require(checked == KVP_OK && kvp_layout_check(&sliced, NULL) == KVP_OK);
    make_memory(in, &layout, checked);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in = {data, data + size};
    if (take(&in, 4) == 0)
        run_layout(&in);
    else
        run_cache(&in);
    return 0;
}
