/* Owns the memory of a replay's host tier, and the loop around its spill.
 *
 *   fetch   ask; until it is answered: work, plan, wait for the store
 *   work    under load: work until nothing happens; the plan is the step's
 *   plan    device -> host   the host block gets the KV of what it is of now
 *           host -> device   the host block must have the KV of what the device block is of now
 *           states           the same, for those that loads bring; then those that the spill writes
 *   close   work until nothing is written any more; stop
 *
 * A host block that the same plan writes is not checked: which of its contents a copy reads is not
 * told. It is counted, and so is one of which a part is copied: KV is made of all that a block has.
 * A state that a sequence took along when it was swapped out is of no checkpoint, so its content
 * cannot be checked: it is counted, too.
 *
 * Time is this machine's, with a real store and one request after the other. Under load it is the
 * simulation's. One request after the other, a model takes no time: it has ended all operations.
 *
 * One request after the other, what the store has is always loaded: no rate of computing could be
 * compared with this machine's. Under load, the model of a step says how fast an engine computes.
 */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include "tool/store/attach.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tool/input/escape.h"
#include "tool/progress.h"
#include "tool/store/known.h"
#include "tool/tool.h"

#define SECOND_NS    UINT64_C(1000000000)
#define WAIT_NS      (SECOND_NS / 100)
#define CLOSE_NS     (10 * SECOND_NS)
#define MAX_PUTS     4096u
#define FEW_PUTS     64u
#define RECORD_BYTES (512u << 10)
#define UNTIMED_TAG  UINT64_MAX /* of the request that is fetched */

/* Host blocks, or slots of states with the spill's places behind them. */
typedef struct host_pool {
    uint8_t *base; /* [n][stride] */
    size_t bytes;
    uint64_t stride;   /* from one to the next; 0: there is no such pool */
    uint64_t kv_bytes; /* of these, those that are KV: all, or a model's few */
    uint32_t n;
    uint8_t *written; /* [n] by the plan that runs */
} host_pool;

struct kvpi_attach {
    kvp_cache *cache;
    kvp_ns ns;
    kvp_store *store;
    kvp_spill *spill;
    host_pool blocks;
    host_pool states;
    uint32_t state_group;
    uint32_t group_tokens[KVP_GROUPS_MAX];
    uint32_t record_tokens;
    uint64_t *expected; /* KV of a block or a state, whichever is larger */
    kvp_copy *copies;   /* [max_copies] */
    uint32_t max_copies;
    bool is_loaded; /* under load: time and plans are the caller's */
    bool has_model;
    kvpi_modelled model; /* its clock is also that of a real store under load */
    kvp_spill_answer answers[KVPI_ATTACH_ASKS]; /* [n_answers] that were not handed on */
    uint32_t n_answers;
    uint64_t n_failed; /* operations of the store, so far */
    kvpi_known *known; /* NULL: it is not watched */
    kvpi_store_report *report;
};

/* --------------------------------------------------------------------------------------- the KV */

/* The finalizer of splitmix64. */
static uint64_t mix_word(uint64_t x)
{
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

/* Make the KV of a content: two contents have no word alike, but by chance. */
static void make_kv(kvpi_attach *attach, const kvp_hash *hash, uint32_t group, uint64_t n_bytes)
{
    uint64_t seeds[2];
    memcpy(seeds, hash->bytes, sizeof seeds);
    seeds[0] += group;
    for (uint64_t i = 0; i < (n_bytes + 7) / 8; i++)
        attach->expected[i] = mix_word(seeds[0] + i * UINT64_C(0x9e3779b97f4a7c15)) ^ seeds[1];
}

/* Gives false if what the block is of is not known, or if not all of it is sealed. */
static bool expect_kv(kvpi_attach *attach, uint32_t tier, int32_t block)
{
    static const kvp_hash none;
    kvp_block_origin origin;
    if (kvp_block_origin_get(attach->cache, tier, block, &origin) != KVP_OK ||
        memcmp(&origin.hash, &none, sizeof none) == 0)
        return false;
    make_kv(attach, &origin.hash, origin.group, attach->blocks.kv_bytes);
    return true;
}

/* Gives false if the slot of the device is no checkpoint. */
static bool expect_state(kvpi_attach *attach, int32_t slot)
{
    kvp_block_info info;
    if (kvp_block_info_get(attach->cache, attach->state_group, KVP_DEVICE, slot, &info) != KVP_OK ||
        info.sealed_units == 0)
        return false;
    make_kv(attach, &info.hash, attach->state_group, attach->states.kv_bytes);
    return true;
}

static uint8_t *bytes_of(const host_pool *pool, int32_t block)
{
    return pool->base + (size_t)block * pool->stride;
}

static bool is_expected(const kvpi_attach *attach, const host_pool *pool, int32_t block)
{
    return memcmp(bytes_of(pool, block), attach->expected, pool->kv_bytes) == 0;
}

static void check_block(kvpi_attach *attach, const kvp_copy *copy)
{
    kvpi_store_report *report = attach->report;
    if (attach->blocks.written[copy->src_block] ||
        copy->n_tokens < attach->group_tokens[copy->group] ||
        !expect_kv(attach, KVP_DEVICE, copy->dst_block)) {
        report->unchecked_blocks++;
        return;
    }
    report->checked_blocks++;
    report->wrong_blocks += !is_expected(attach, &attach->blocks, copy->src_block);
}

static void check_state(kvpi_attach *attach, const kvp_copy *copy)
{
    kvpi_store_report *report = attach->report;
    if (attach->states.written[copy->src_block] || !expect_state(attach, copy->dst_block)) {
        report->unchecked_states++;
        return;
    }
    report->checked_states++;
    report->wrong_states += !is_expected(attach, &attach->states, copy->src_block);
}

static void mark(kvpi_attach *attach, const kvp_copy *copies, uint32_t n, uint8_t value)
{
    for (uint32_t k = 0; k < n; k++) {
        host_pool *pool =
            copies[k].group == attach->state_group ? &attach->states : &attach->blocks;
        if (copies[k].dst_tier == KVP_HOST)
            pool->written[copies[k].dst_block] = value;
    }
}

/* States that the spill writes, and has made sure of until they are copied. */
static kvp_status copy_states(kvpi_attach *attach, uint64_t *out_n)
{
    kvp_copy copies[KVPI_ATTACH_STATES];
    uint32_t n = 0;
    const kvp_status status =
        kvp_spill_copies(attach->spill, copies, KVPI_ATTACH_STATES, &n); /* there are no more */
    for (uint32_t k = 0; k < n; k++)
        if (expect_state(attach, copies[k].src_block))
            memcpy(bytes_of(&attach->states, copies[k].dst_block), attach->expected,
                   attach->states.kv_bytes);
    *out_n = n;
    return status;
}

kvp_status kvpi_attach_copies(kvpi_attach *attach, const kvp_copy *copies, uint32_t n,
                              uint64_t *out_states)
{
    kvp_stats stats;
    mark(attach, copies, n, 1);
    for (uint32_t k = 0; k < n; k++) {
        if (copies[k].src_tier != KVP_HOST)
            continue;
        if (copies[k].group != attach->state_group)
            check_block(attach, &copies[k]);
        else
            check_state(attach, &copies[k]);
    }
    for (uint32_t k = 0; k < n; k++)
        if (copies[k].dst_tier == KVP_HOST && copies[k].group != attach->state_group &&
            expect_kv(attach, KVP_HOST, copies[k].dst_block))
            memcpy(bytes_of(&attach->blocks, copies[k].dst_block), attach->expected,
                   attach->blocks.kv_bytes);
    mark(attach, copies, n, 0);
    kvp_status status = copy_states(attach, out_states);
    if (status == KVP_OK)
        status = kvp_cache_stats_get(attach->cache, &stats);
    return status == KVP_OK ? kvp_plan_done(attach->cache, stats.plans) : status;
}

kvp_status kvpi_attach_run_plan(kvpi_attach *attach)
{
    uint32_t n = 0;
    uint64_t n_states;
    kvp_status status = kvp_plan_take(attach->cache, attach->copies, attach->max_copies, &n);
    return status == KVP_OK ? kvpi_attach_copies(attach, attach->copies, n, &n_states) : status;
}

/* ------------------------------------------------------------------------------------ the spill */

static uint64_t now_of(const kvpi_attach *attach)
{
    return attach->is_loaded || attach->has_model ? attach->model.now_ns : kvpi_progress_now_ns();
}

/* Store i of several, or the only one. */
static const kvp_store *part_of(const kvpi_attach *attach, uint32_t i)
{
    const kvp_store *part = kvp_store_stack_part(attach->store, i);
    return part != NULL ? part : attach->store;
}

/* Operations have failed: what a store says of itself now is why. It forgets that when it works
 * again. */
static void note_trouble(const kvpi_attach *attach)
{
    for (uint32_t i = 0; i < attach->report->n_parts; i++) {
        kvpi_store_part *part = &attach->report->parts[i];
        kvp_store_stats stats = {0};
        char text[sizeof part->trouble] = "";
        (void)kvp_store_stats_get(part_of(attach, i), &stats);
        if (stats.failed + stats.away == part->n_failed)
            continue;
        part->n_failed = stats.failed + stats.away;
        (void)kvp_store_describe(part_of(attach, i), text, sizeof text);
        const size_t n = strlen(part->described);
        const bool is_more = strncmp(text, part->described, n) == 0 && text[n] == ';';
        if (strcmp(text, part->described) != 0)
            snprintf(part->trouble, sizeof part->trouble, "%s", is_more ? text + n + 2 : text);
    }
}

static uint64_t count_queued(kvpi_attach *attach)
{
    kvp_store_stats stats = {0};
    (void)kvp_store_stats_get(attach->store, &stats);
    if (stats.failed + stats.away > attach->n_failed)
        note_trouble(attach);
    attach->n_failed = stats.failed + stats.away;
    if (stats.queued > attach->report->most_queued)
        attach->report->most_queued = stats.queued;
    return stats.queued;
}

static kvp_status work(kvpi_attach *attach)
{
    uint32_t n = 0;
    if (attach->has_model)
        (void)kvp_store_work(attach->store, NULL);
    kvp_status status =
        kvp_spill_work(attach->spill, now_of(attach), attach->answers + attach->n_answers,
                       KVPI_ATTACH_ASKS - attach->n_answers, &n);
    attach->n_answers += n;
    (void)count_queued(attach);
    if (attach->has_model)
        (void)kvp_store_work(attach->store, NULL);
    return status;
}

static kvp_spill_stats stats_of(const kvpi_attach *attach)
{
    kvp_spill_stats stats = {0};
    (void)kvp_spill_stats_get(attach->spill, &stats);
    return stats;
}

/* Work once. Gives whether more can happen now. */
static kvp_status work_on(kvpi_attach *attach, bool *more)
{
    kvp_spill_stats before = stats_of(attach);
    uint64_t n_queued = count_queued(attach);
    kvp_status status = attach->is_loaded ? KVP_OK : kvpi_attach_run_plan(attach);
    if (status == KVP_OK)
        status = work(attach);
    kvp_spill_stats after = stats_of(attach);
    *more = memcmp(&before, &after, sizeof before) != 0 || n_queued != count_queued(attach) ||
            kvp_store_wait(attach->store, 0) == KVP_OK;
    return status;
}

/* Work, until nothing more can happen now. */
static kvp_status settle(kvpi_attach *attach)
{
    bool more = true;
    kvp_status status = KVP_OK;
    while (status == KVP_OK && more)
        status = work_on(attach, &more);
    return status;
}

void kvpi_attach_wait(const kvpi_attach *attach, uint64_t timeout_ns)
{
    (void)kvp_store_wait(attach->store, timeout_ns);
}

uint64_t kvpi_attach_due(const kvpi_attach *attach)
{
    return attach->model.due_ns;
}

/* One request after the other: wait for the store. False: it has nothing to do. A put may be left
 * all the same, which waits for more of the host than the cache lends. Of a model also false while
 * its operations are not over, but when a simulation is. */
static bool pass_time(kvpi_attach *attach)
{
    if (!attach->has_model) {
        const bool is_idle = count_queued(attach) == 0;
        return kvp_store_wait(attach->store, is_idle ? WAIT_NS / 10 : WAIT_NS) == KVP_OK ||
               !is_idle;
    }
    if (attach->model.due_ns == KVPI_MODELLED_NEVER)
        return false;
    attach->model.now_ns = attach->model.due_ns;
    return true;
}

/* Until all puts have ended, or for ten seconds. */
static kvp_status wait_for_puts(kvpi_attach *attach)
{
    uint64_t end_ns = kvpi_progress_now_ns() + CLOSE_NS;
    kvp_status status = settle(attach);
    while (status == KVP_OK && stats_of(attach).puts > 0 && kvpi_progress_now_ns() < end_ns &&
           pass_time(attach))
        status = settle(attach);
    return status;
}

/* Gives the outcome. What a replay hits is no matter of this machine's speed: it waits as long as
 * the spill lets it. */
static uint32_t ask(kvpi_attach *attach, const kvp_prompt *prompt, uint64_t tag)
{
    const kvp_spill_request request = {
        .struct_size = sizeof request, .tag = tag, .deadline_ns = UINT64_MAX};
    kvp_spill_answer answer = {.outcome = KVP_SPILL_NOTHING};
    if (kvp_spill_ask(attach->spill, attach->ns, prompt, &request, now_of(attach), &answer) !=
        KVP_OK)
        attach->report->unasked++;
    return answer.outcome;
}

kvp_status kvpi_attach_fetch(kvpi_attach *attach, const kvp_prompt *prompt, uint32_t *out_outcome)
{
    kvp_status status = wait_for_puts(attach);
    if (status != KVP_OK)
        return status;
    *out_outcome = ask(attach, prompt, UNTIMED_TAG);
    if (*out_outcome != KVP_SPILL_WAITS)
        return KVP_OK;
    do
        status = settle(attach);
    while (status == KVP_OK && attach->n_answers == 0 && (pass_time(attach) || !attach->has_model));
    if (attach->n_answers > 0)
        *out_outcome = attach->answers[0].outcome;
    attach->n_answers = 0;
    return status;
}

uint32_t kvpi_attach_record_tokens(const kvpi_attach *attach)
{
    return attach->record_tokens;
}

void kvpi_attach_clock(kvpi_attach *attach, uint64_t now)
{
    if (attach->known != NULL)
        kvpi_known_at(attach->known, now);
}

/* Why what the store has is not in the cache after the answer. */
static const char *kept_back(const kvpi_attach *attach, uint32_t outcome)
{
    switch (outcome) {
    case KVP_SPILL_LOADED:
    case KVP_SPILL_COMPUTE:
        return attach->is_loaded ? "in the store: computing is faster, or no host block"
                                 : "in the store: no host block";
    case KVP_SPILL_WAITS:
    case KVP_SPILL_DEADLINE: return "in the store: deadline";
    case KVP_SPILL_OUTCOMES: return "in the store: not asked";
    case KVP_SPILL_NOTHING:
        return attach->report->has_states ? "in the store: no state" : "in the store";
    default: return "in the store: it fails";
    }
}

kvp_status kvpi_attach_see(kvpi_attach *attach, const int32_t *tokens, uint32_t n_tokens,
                           uint32_t outcome, kvpi_watch_store *out)
{
    const kvp_status status = kvpi_known_tell(attach->known, tokens, n_tokens, out);
    out->kept_back = kept_back(attach, outcome);
    return status;
}

kvp_status kvpi_attach_hit(kvpi_attach *attach, kvp_seq seq, uint32_t hit_tokens)
{
    return kvp_spill_hit(attach->spill, seq, hit_tokens, now_of(attach));
}

kvp_status kvpi_attach_sealed(kvpi_attach *attach, kvp_seq seq)
{
    kvp_status status = kvp_spill_sealed(attach->spill, seq, now_of(attach));
    return status == KVP_OK && !attach->is_loaded ? wait_for_puts(attach) : status;
}

/* ----------------------------------------------------------------------------------- under load */

void kvpi_attach_at(kvpi_attach *attach, uint64_t now_ns)
{
    attach->model.now_ns = now_ns;
    kvpi_attach_clock(attach, now_ns / 1000000);
}

kvp_status kvpi_attach_ask(kvpi_attach *attach, const kvp_prompt *prompt, uint64_t tag,
                           uint32_t *out_outcome)
{
    if (stats_of(attach).waiting + attach->n_answers == KVPI_ATTACH_ASKS)
        return KVP_E_AGAIN;
    *out_outcome = ask(attach, prompt, tag);
    return KVP_OK;
}

/* While no request waits for a real store, simulated time is far faster than this machine's: the
 * store is waited for, or a put would last hundreds of steps. */
static bool is_busy(kvpi_attach *attach)
{
    return !attach->has_model &&
           count_queued(attach) > (stats_of(attach).waiting > 0 ? FEW_PUTS : 0);
}

kvp_status kvpi_attach_work(kvpi_attach *attach, kvp_spill_answer *out_answers, uint32_t *out_n,
                            bool *out_happened)
{
    kvp_status status = KVP_OK;
    bool more = true;
    *out_happened = false;
    uint64_t end_ns = kvpi_progress_now_ns() + CLOSE_NS;
    while (status == KVP_OK && more) {
        bool is_full = is_busy(attach) && kvpi_progress_now_ns() < end_ns;
        if (is_full)
            kvpi_attach_wait(attach, WAIT_NS);
        status = work_on(attach, &more);
        *out_happened = *out_happened || more;
        more = more || is_full;
    }
    memcpy(out_answers, attach->answers, attach->n_answers * sizeof *out_answers);
    *out_n = attach->n_answers;
    attach->n_answers = 0;
    return status;
}

/* ---------------------------------------------------------------------------------- open, close */

/* All that a record of a replay depends on, beside its tokens. */
static kvp_status make_fingerprint(const kvpi_attach_options *options, const kvp_config *cache,
                                   kvp_digest *out)
{
    const bool has_groups = cache->n_groups > 1 || cache->groups[0].recent_tokens > 0;
    static const char text[] = "kvpager replay KV 1";
    const uint64_t sizes[2] = {options->block_bytes, options->state_bytes};
    kvp_digester *digester = NULL;
    memset(out, 0, sizeof *out);
    memcpy(out->bytes, text, sizeof text);
    memcpy(out->bytes + sizeof out->bytes - sizeof sizes[0], &sizes[0], sizeof sizes[0]);
    if (options->state_bytes == 0 && !has_groups)
        return KVP_OK;
    kvp_status status = kvp_digester_create(&digester);
    if (status == KVP_OK && has_groups)
        status = kvp_fingerprint_states(digester, out, cache->groups,
                                        cache->n_groups * (uint32_t)sizeof *cache->groups, out);
    if (status == KVP_OK && options->state_bytes > 0)
        status = kvp_fingerprint_states(digester, out, &sizes[1], sizeof sizes[1], out);
    kvp_digester_destroy(digester);
    return status;
}

/* As a store chooses them: by the bytes that a model stands for. A state that does not end a record
 * is not written. Sizes of blocks are powers of two of the least. Where a record is as long as the
 * windows, one of each is all that a hit needs. */
static uint32_t record_blocks_of(const kvpi_attach_options *options, const kvp_config *cache)
{
    const uint32_t S = cache->block_tokens;
    uint32_t n = 1;
    if (options->record_blocks > 0)
        return (uint32_t)options->record_blocks;
    for (uint32_t g = 0; g < cache->n_groups; g++)
        while (n < KVP_RECORD_BLOCKS_MAX && (n * S % cache->groups[g].block_tokens != 0 ||
                                             n * S < cache->groups[g].recent_tokens))
            n *= 2;
    while (options->state_bytes == 0 && n < KVP_RECORD_BLOCKS_MAX &&
           n * S / cache->groups[0].block_tokens * options->block_bytes < RECORD_BYTES)
        n *= 2;
    return n;
}

/* Blocks of a record of each group: of a window what a hit at its end needs. Gives the most. */
static uint32_t set_groups(const kvp_config *cache, kvp_store_config *config)
{
    const uint32_t n_tokens = config->record_blocks * cache->block_tokens;
    uint32_t most = 0;
    for (uint32_t g = 0; g < cache->n_groups; g++) {
        const kvp_group *group = &cache->groups[g];
        const bool has_sinks = group->sink_tokens > 0 && group->sink_tokens != KVP_CHUNKED;
        uint32_t n = n_tokens / group->block_tokens;
        config->group_tokens[g] = group->block_tokens;
        if (group->recent_tokens > 0 && !has_sinks)
            config->group_blocks[g] = (group->recent_tokens - 1) / group->block_tokens + 1;
        if (config->group_blocks[g] > 0 && config->group_blocks[g] < n)
            n = config->group_blocks[g];
        most = n > most ? n : most;
    }
    return most;
}

static int fail(const kvpi_attach_options *options, const char *why, kvp_status status)
{
    const char *option = options->model.size == 0   ? "--store"
                         : options->model.is_remote ? "--remote"
                                                    : "--disk";
    return kvpi_tool_fail("replay", "%s: %s", option, why[0] ? why : kvp_status_text(status));
}

/* Of several stores, the message names the one that is at fault. */
static int fail_store(const kvpi_attach_options *options, const char *url, const char *why,
                      kvp_status status)
{
    if (options->n_farther == 0)
        return fail(options, why, status);
    char shown[KVPI_STORE_URL_BYTES];
    (void)kvp_store_url_show(url, shown, sizeof shown);
    return kvpi_tool_fail("replay", "--store %s: %s", kvpi_escape(shown).of,
                          why[0] ? why : kvp_status_text(status));
}

static const char *url_of(const kvpi_attach_options *options, uint32_t i)
{
    return i == 0 ? options->url : options->farther[i - 1];
}

static int open_real(kvpi_attach *attach, const kvpi_attach_options *options,
                     kvp_store_config *config)
{
    char why[256];
    kvp_store *stores[KVP_STORE_STACK_MAX] = {NULL};
    kvp_store_stack_config stack;
    kvp_store_stack_config_init(&stack);
    stack.stores = stores;
    kvp_status status = KVP_OK;
    while (status == KVP_OK && stack.n_stores <= options->n_farther) {
        config->url = url_of(options, stack.n_stores);
        status = kvp_store_open(config, &stores[stack.n_stores], why, sizeof why);
        stack.n_stores += status == KVP_OK;
    }
    if (status == KVP_OK && stack.n_stores == 1) {
        attach->store = stores[0];
        return TOOL_OK;
    }
    if (status == KVP_OK) {
        config->url = options->url;
        status = kvp_store_stack_open(&stack, &attach->store, why, sizeof why);
    }
    if (status == KVP_OK)
        return TOOL_OK;
    for (uint32_t i = 0; i < stack.n_stores; i++)
        kvp_store_close(stores[i]);
    return fail_store(options, config->url, why, status);
}

static int open_store(kvpi_attach *attach, const kvpi_attach_options *options,
                      const kvp_config *cache, const kvp_digest *fingerprint)
{
    char why[256];
    kvp_store_config config;
    kvp_store_config_init(&config);
    config.url = options->url;
    config.fingerprint = *fingerprint;
    config.block_tokens = cache->block_tokens;
    config.n_groups = cache->n_groups + (options->state_bytes > 0);
    for (uint32_t g = 0; g < config.n_groups; g++)
        config.block_bytes[g] =
            g < cache->n_groups ? attach->blocks.kv_bytes : attach->states.kv_bytes;
    config.record_blocks = record_blocks_of(options, cache);
    config.max_ops = 256;
    attach->record_tokens = config.record_blocks * cache->block_tokens;
    attach->model.options = options->model;
    attach->model.takes_time = attach->is_loaded;
    attach->model.block_bytes = options->block_bytes;
    attach->model.record_bytes = set_groups(cache, &config) * options->block_bytes;
    attach->model.state_bytes = options->state_bytes;
    if (!attach->has_model)
        return open_real(attach, options, &config);
    kvp_status status =
        kvpi_modelled_open(&config, &attach->model, &attach->store, why, sizeof why);
    return status == KVP_OK ? TOOL_OK : fail(options, why, status);
}

static int watch_store(kvpi_attach *attach, const kvpi_attach_options *options,
                       const kvp_config *cache, const kvp_digest *fingerprint)
{
    if (!options->watched)
        return TOOL_OK;
    const kvp_status status = kvpi_known_open(
        fingerprint, cache->block_tokens, kvp_store_record_blocks(attach->store), &attach->known);
    attach->model.leaves = status == KVP_OK ? kvpi_known_leaves : NULL;
    attach->model.leaves_context = attach->known;
    return status == KVP_OK ? TOOL_OK : fail(options, "", status);
}

static int create_spill(kvpi_attach *attach, const kvpi_attach_options *options,
                        const kvp_digest *fingerprint)
{
    char why[256];
    kvp_spill_config config;
    kvp_spill_config_init(&config);
    config.cache = attach->cache;
    config.store = attach->store;
    config.fingerprint = *fingerprint;
    config.slice = kvpi_known_slice;
    for (uint32_t g = 0; g < attach->state_group; g++) {
        config.block_bytes[g] = options->block_bytes;
        config.host[g] = (kvp_spill_host){attach->blocks.base, (size_t)attach->blocks.stride};
    }
    if (options->state_bytes > 0) {
        config.block_bytes[attach->state_group] = options->state_bytes;
        config.host[attach->state_group] =
            (kvp_spill_host){attach->states.base, (size_t)attach->states.stride};
    }
    config.max_states = KVPI_ATTACH_STATES;
    config.policy = options->through ? KVP_SPILL_THROUGH : KVP_SPILL_SECOND;
    config.max_puts = MAX_PUTS;
    config.put_bytes = UINT64_C(1) << 40;
    config.max_asks = KVPI_ATTACH_ASKS;
    if (attach->has_model)
        config.load_bytes_s = options->model.bytes_s;
    config.min_tokens = attach->is_loaded ? config.min_tokens : 1;
    config.compute_tokens_s = attach->is_loaded ? options->compute_tokens_s : 1;
    config.note = attach->known != NULL ? kvpi_known_note : NULL;
    config.note_context = attach->known;
    kvp_status status = kvp_spill_create(&config, &attach->spill, why, sizeof why);
    if (status != KVP_OK)
        return fail(options, why, status);
    status = kvp_spill_space(attach->spill, attach->ns, KVPI_KNOWN_SPACE,
                             sizeof KVPI_KNOWN_SPACE - 1, 0);
    if (status != KVP_OK)
        return kvpi_tool_fail("replay", "--store: naming the namespace: %s",
                              kvp_status_text(status));
    return TOOL_OK;
}

/* The system backs what is touched only. */
static int open_pool(host_pool *pool, const char *what)
{
    pool->bytes = (size_t)pool->n * pool->stride;
    void *base = mmap(NULL, pool->bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED)
        return kvpi_tool_fail("replay", "%llu %s of %llu bytes on the host: %s",
                              (unsigned long long)pool->n, what, (unsigned long long)pool->stride,
                              strerror(errno));
    pool->base = base;
    pool->written = calloc(pool->n, 1);
    return pool->written != NULL ? TOOL_OK
                                 : kvpi_tool_fail("replay", "out of memory for the store");
}

static void close_pool(host_pool *pool)
{
    if (pool->base != NULL)
        munmap(pool->base, pool->bytes);
    free(pool->written);
}

static uint64_t kept_bytes(const kvpi_attach *attach, uint64_t bytes)
{
    return attach->has_model && bytes > KVPI_MODELLED_BLOCK_BYTES ? KVPI_MODELLED_BLOCK_BYTES
                                                                  : bytes;
}

static int allocate(kvpi_attach *attach, const kvpi_attach_options *options,
                    const kvp_config *cache)
{
    const uint64_t block_bytes = kept_bytes(attach, options->block_bytes);
    const uint64_t state_bytes = kept_bytes(attach, options->state_bytes);
    attach->blocks = (host_pool){
        .stride = options->block_bytes, .kv_bytes = block_bytes, .n = cache->host_blocks};
    attach->states = (host_pool){.stride = options->state_bytes,
                                 .kv_bytes = state_bytes,
                                 .n = cache->host_state_slots + KVPI_ATTACH_STATES};
    attach->state_group = cache->n_groups;
    for (uint32_t g = 0; g < cache->n_groups; g++)
        attach->group_tokens[g] = cache->groups[g].block_tokens;
    attach->max_copies = cache->max_copies;
    if (open_pool(&attach->blocks, "blocks") != TOOL_OK ||
        (options->state_bytes > 0 && open_pool(&attach->states, "states") != TOOL_OK))
        return TOOL_FAILED;
    attach->expected = malloc((size_t)(block_bytes > state_bytes ? block_bytes : state_bytes) + 7);
    attach->copies = malloc(attach->max_copies * sizeof *attach->copies);
    if (attach->expected == NULL || attach->copies == NULL)
        return kvpi_tool_fail("replay", "out of memory for the store");
    return TOOL_OK;
}

static void describe_store(kvpi_attach *attach, const kvpi_attach_options *options)
{
    kvpi_store_report *report = attach->report;
    report->url = options->url;
    report->n_parts = 1 + options->n_farther;
    for (uint32_t i = 0; i < report->n_parts; i++) {
        kvpi_store_part *part = &report->parts[i];
        part->url = url_of(options, i);
        (void)kvp_store_describe(part_of(attach, i), part->described, sizeof part->described);
    }
    report->is_model = attach->has_model;
    report->through = options->through;
    report->has_states = options->state_bytes > 0;
    report->record_blocks = kvp_store_record_blocks(attach->store);
}

int kvpi_attach_open(const kvpi_attach_options *options, kvp_cache *cache, kvp_ns ns,
                     kvpi_store_report *report, kvpi_attach **out)
{
    kvp_config config;
    kvp_digest fingerprint;
    kvpi_attach *attach = calloc(1, sizeof *attach);
    if (attach == NULL || kvp_cache_config_get(cache, &config) != KVP_OK ||
        make_fingerprint(options, &config, &fingerprint) != KVP_OK) {
        free(attach);
        return kvpi_tool_fail("replay", "out of memory for the store");
    }
    attach->cache = cache;
    attach->ns = ns;
    attach->report = report;
    attach->is_loaded = options->compute_tokens_s > 0;
    attach->has_model = options->model.size > 0;
    if (allocate(attach, options, &config) != TOOL_OK ||
        open_store(attach, options, &config, &fingerprint) != TOOL_OK ||
        watch_store(attach, options, &config, &fingerprint) != TOOL_OK ||
        create_spill(attach, options, &fingerprint) != TOOL_OK) {
        kvpi_attach_close(attach);
        return TOOL_FAILED;
    }
    describe_store(attach, options);
    *out = attach;
    return TOOL_OK;
}

/* The bytes that a model stands for. */
static void scale(const kvpi_attach *attach, kvp_store_stats *stats)
{
    if (!attach->has_model)
        return;
    stats->read_bytes = attach->model.read_bytes;
    stats->written_bytes = attach->model.written_bytes;
}

static void stop(kvpi_attach *attach)
{
    attach->is_loaded = false; /* no other takes plans any more */
    kvp_status status = wait_for_puts(attach);
    attach->report->unfinished = stats_of(attach).puts;
    while (status == KVP_OK && kvp_spill_stop(attach->spill, now_of(attach)) != KVP_OK) {
        attach->n_answers = 0;
        status = settle(attach);
        (void)pass_time(attach);
    }
    (void)kvp_spill_stats_get(attach->spill, &attach->report->spill);
    (void)kvp_store_stats_get(attach->store, &attach->report->store);
    scale(attach, &attach->report->store);
    for (uint32_t i = 0; i < attach->report->n_parts; i++) {
        kvp_store_stats *stats = &attach->report->parts[i].stats;
        (void)kvp_store_stats_get(part_of(attach, i), stats);
        scale(attach, stats);
    }
}

void kvpi_attach_close(kvpi_attach *attach)
{
    if (attach == NULL)
        return;
    if (attach->spill != NULL)
        stop(attach);
    kvp_store_close(attach->store);
    kvp_spill_destroy(attach->spill);
    kvpi_known_close(attach->known);
    close_pool(&attach->blocks);
    close_pool(&attach->states);
    free(attach->expected);
    free(attach->copies);
    free(attach);
}
