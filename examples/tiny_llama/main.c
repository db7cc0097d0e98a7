/* A model that runs on kvpager: a tiny Llama with random weights.
 *
 * The same requests are generated twice: with the KV of each sequence in one piece (plain.c), and
 * with the cache (engine.c) in several ways. Some requests have samples, which are forked. Some
 * have beams, which are forked and closed at every token. The tokens must be the same each time,
 * also with a draft whose token trees are accepted in part (speculate.c). Then everything runs
 * again with a window in the middle layer. Last come two layers with recurrent state around one
 * with attention (recurrent.c), also with drafts in chains (chains.c).
 *
 * tiny_llama --bench: tokens per second of a somewhat larger model. */
#include <kvpager/attention.h>
#include <stdio.h>
#include <string.h>

#include "bench.h"
#include "chains.h"
#include "engine.h"
#include "model.h"
#include "plain.h"
#include "recurrent.h"
#include "speculate.h"

enum { N_REQUESTS = 6, N_SYSTEM = 18, MAX_PROMPT = 40, N_NEW = 16, MAX_BEAMS = 3, MAX_OUT = 48 };

/* Requests, and room for what is generated. */
struct requests {
    int32_t prompts[N_REQUESTS][MAX_PROMPT];
    int32_t out[N_REQUESTS][MAX_OUT];
    struct generation generations[N_REQUESTS];
};

/* Prompts that begin alike: the first 18 tokens, of half of them 30. The last two have samples and
 * beams. */
static void make_requests(struct requests *requests)
{
    for (uint32_t i = 0; i < N_REQUESTS; i++) {
        struct generation *g = &requests->generations[i];
        for (uint32_t at = 0; at < MAX_PROMPT; at++) {
            const uint32_t who = at < N_SYSTEM ? 0 : at < 30 ? 1 + i % 2 : 10 + i;
            requests->prompts[i][at] = (int32_t)((at * 37 + who * 101 + at * at * who) % 211);
        }
        *g = (struct generation){.prompt = requests->prompts[i],
                                 .n_prompt = 20 + 3 * i,
                                 .n_new = N_NEW,
                                 .n_samples = i + 2 < N_REQUESTS ? 1 : MAX_BEAMS,
                                 .is_beam = i + 1 == N_REQUESTS,
                                 .seed = 1000 + i,
                                 .out = requests->out[i]};
    }
}

static uint32_t count_differences(const struct requests *a, const struct requests *b)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < N_REQUESTS; i++) {
        const struct generation *g = &a->generations[i];
        for (uint32_t j = 0; j < g->n_samples * g->n_new; j++)
            n += a->out[i][j] != b->out[i][j];
    }
    return n;
}

static void print_tokens(const struct requests *requests)
{
    for (uint32_t i = 0; i < N_REQUESTS; i++) {
        const struct generation *g = &requests->generations[i];
        for (uint32_t sample = 0; sample < g->n_samples; sample++) {
            printf("%u.%u:", i, sample);
            for (uint32_t j = 0; j < g->n_new; j++)
                printf(" %d", (int)g->out[sample * g->n_new + j]);
            printf("%s\n", g->is_beam ? "   (beam)" : "");
        }
    }
}

/* One way to run them: `times` times in the same engine. */
struct way {
    const char *name;
    engine_options options;
    uint32_t times;
};

static int run_way(struct model *model, const struct way *way, const struct requests *expected)
{
    static struct requests found;
    struct engine *engine = NULL;
    kvp_status status = engine_create(model, &way->options, &engine);
    uint32_t n_different = 0;
    for (uint32_t i = 0; i < way->times && status == KVP_OK; i++) {
        found = *expected;
        for (uint32_t j = 0; j < N_REQUESTS; j++) {
            memset(found.out[j], 0xFF, sizeof found.out[j]);
            found.generations[j].out = found.out[j];
        }
        status = engine_run(engine, found.generations, N_REQUESTS);
        if (status == KVP_OK)
            n_different += count_differences(&found, expected);
    }
    if (status == KVP_OK) {
        const engine_counts counts = engine_counts_of(engine);
        printf("%-34s %5u %8u %6u %9u %5u %6u %7u  %s\n", way->name, (unsigned)counts.steps,
               (unsigned)counts.computed_tokens, (unsigned)counts.cached_tokens,
               (unsigned)counts.preemptions, (unsigned)counts.swaps, (unsigned)counts.copied_blocks,
               (unsigned)counts.dropped_blocks, n_different == 0 ? "same tokens" : "OTHER TOKENS");
    } else {
        printf("%-34s %s\n", way->name, kvp_status_text(status));
    }
    engine_destroy(engine);
    return status != KVP_OK || n_different > 0;
}

static int run_table(struct model *model, const struct way *ways, size_t n_ways,
                     const struct requests *expected)
{
    int failed = 0;
    printf("%-34s %5s %8s %6s %9s %5s %6s %7s\n", "", "steps", "computed", "cached", "preempted",
           "swaps", "copies", "dropped");
    for (size_t i = 0; i < n_ways; i++)
        failed |= run_way(model, &ways[i], expected);
    return failed;
}

static int run_full(struct model *model, const struct requests *expected)
{
    const engine_options plain = engine_default_options();
    engine_options few = plain; /* blocks: not enough for all requests at once */
    few.n_blocks = 28;
    struct way ways[] = {
        {"one after the other", plain, 1},
        {"together", plain, 1},
        {"no prefix cache", plain, 1},
        {"twice: prompts are cached", plain, 2},
        {"chunks of 5 tokens", plain, 1},
        {"blocks of 1 token", plain, 1},
        {"blocks of 7 tokens", plain, 1},
        {"K turned when it is read", plain, 1},
        {"cascade", plain, 1},
        {"few blocks: recompute", few, 1},
        {"the same without prefix cache", few, 1},
        {"few blocks: swap", few, 1},
        {"what is evicted stays on the host", few, 2},
        {"steps are overlapped", few, 1},
        {"steps are lost: 2, 4, 8, ...", plain, 1},
    };
    ways[0].options.max_running = MAX_BEAMS;
    ways[2].options.prefix_cache = 0;
    ways[4].options.chunk_tokens = 5;
    ways[5].options.block_tokens = 1;
    ways[6].options.block_tokens = 7;
    ways[7].options.rope_mode = KVP_ROPE_AT_READ;
    ways[8].options.cascade = 1;
    ways[10].options.prefix_cache = 0;
    ways[11].options.preempt = KVP_PREEMPT_SWAP;
    ways[11].options.host_blocks = 64;
    ways[12].options.host_blocks = 64;
    ways[13].options.overlapped = 1;
    ways[14].options.lose_steps = 1;
    return run_table(model, ways, sizeof ways / sizeof *ways, expected);
}

/* Two layer groups take twice the blocks, less what the window drops. */
static int run_hybrid(struct model *model, const struct requests *expected)
{
    const engine_options plain = engine_default_options();
    engine_options few = plain;
    few.n_blocks = 48;
    struct way ways[] = {
        {"together", plain, 1},
        {"no prefix cache", plain, 1},
        {"twice: prompts are cached", plain, 2},
        {"chunks of 5 tokens", plain, 1},
        {"blocks of 1 token", plain, 1},
        {"cascade", plain, 1},
        {"few blocks: recompute", few, 1},
        {"few blocks: swap", few, 1},
        {"what is evicted stays on the host", few, 2},
        {"steps are overlapped", few, 1},
    };
    ways[1].options.prefix_cache = 0;
    ways[3].options.chunk_tokens = 5;
    ways[4].options.block_tokens = 1;
    ways[5].options.cascade = 1;
    ways[7].options.preempt = KVP_PREEMPT_SWAP;
    ways[7].options.host_blocks = 96;
    ways[8].options.host_blocks = 96;
    ways[9].options.overlapped = 1;
    return run_table(model, ways, sizeof ways / sizeof *ways, expected);
}

static int run_speculation(struct model *model, const char *name, const speculate_options *options,
                           const struct requests *expected)
{
    speculate_counts c;
    const kvp_status status = speculate_run(model, options, expected->generations, N_REQUESTS, &c);
    if (status == KVP_OK)
        printf("%-34s %5u %6u %8u %7.2f %5u %6u %6u %7u  %s\n", name, (unsigned)c.steps,
               (unsigned)c.tokens, (unsigned)c.accepted_tokens,
               1.0 + (double)c.accepted_tokens / (double)c.paths, (unsigned)c.moved_slots,
               (unsigned)c.cached_tokens, (unsigned)c.copied_blocks, (unsigned)c.dropped_blocks,
               c.different == 0 ? "same tokens" : "OTHER TOKENS");
    else
        printf("%-34s %s\n", name, kvp_status_text(status));
    return status != KVP_OK || c.different > 0;
}

/* Trees of a draft, whatever the model; all requests but the one with beams. */
static int run_speculations(struct model *model, const struct requests *expected)
{
    static const struct {
        const char *name;
        speculate_options options;
    } ways[] = {
        {"trees: one after the other", {.block_tokens = 4, .rounds = 1}},
        {"trees: together", {.block_tokens = 4, .rounds = 1, .together = 1}},
        {"trees: blocks of 7 tokens", {.block_tokens = 7, .rounds = 1, .together = 1}},
        {"trees: two rounds of nodes", {.block_tokens = 4, .rounds = 2, .together = 1}},
        {"trees: forked in between", {.block_tokens = 4, .rounds = 1, .together = 1, .fork = 1}},
        {"trees: both", {.block_tokens = 4, .rounds = 2, .together = 1, .fork = 1}},
        {"trees: what was accepted is hit",
         {.block_tokens = 4, .rounds = 1, .together = 1, .again = 1}},
    };
    int failed = 0;
    printf("%-34s %5s %6s %8s %7s %5s %6s %6s %7s\n", "", "steps", "tokens", "accepted", "a round",
           "moved", "cached", "copies", "dropped");
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        failed |= run_speculation(model, ways[i].name, &ways[i].options, expected);
    return failed;
}

static int run_recurrent_way(struct model *model, const char *name,
                             const recurrent_options *options, const struct requests *expected)
{
    recurrent_counts c;
    const kvp_status status = recurrent_run(model, options, expected->generations, N_REQUESTS, &c);
    if (status == KVP_OK)
        printf("%-34s %5u %8u %6u %9u %6u %4u %5u %4u  %s\n", name, (unsigned)c.steps,
               (unsigned)c.computed_tokens, (unsigned)c.cached_tokens, (unsigned)c.preemptions,
               (unsigned)c.rolled_back, (unsigned)c.checkpoints, (unsigned)c.hits, (unsigned)c.lost,
               c.different == 0 ? "same tokens" : "OTHER TOKENS");
    else
        printf("%-34s %s\n", name, kvp_status_text(status));
    return status != KVP_OK || c.different > 0;
}

static int run_chains_way(struct model *model, const char *name, const chains_options *options,
                          const struct requests *expected)
{
    chains_counts c;
    const kvp_status status = chains_run(model, options, expected->generations, N_REQUESTS, &c);
    if (status == KVP_OK)
        printf("%-34s %5u %8u %6u %6u %8u %9u %5u  %s\n", name, (unsigned)c.sched.steps,
               (unsigned)c.sched.scheduled_tokens, (unsigned)c.sched.cached_tokens,
               (unsigned)c.sched.draft_tokens, (unsigned)c.sched.accepted_tokens,
               (unsigned)c.sched.preemptions, (unsigned)c.hits,
               c.missing == 0 ? "same tokens" : "OTHER TOKENS");
    else
        printf("%-34s %s\n", name, kvp_status_text(status));
    return status != KVP_OK || c.missing > 0;
}

/* Chains of a draft, which need more slots; all requests but the one with beams. */
static int run_chains(struct model *model, const struct requests *expected)
{
    const chains_options plain = chains_default_options();
    struct {
        const char *name;
        chains_options options;
    } ways[] = {
        {"chains: no drafts", plain},
        {"chains: 1 draft", plain},
        {"chains: 4 drafts", plain},
        {"chains: 16 drafts", plain},
        {"chains: twice", plain},
        {"chains: chunks of 5 tokens", plain},
        {"chains: few blocks", plain},
        {"chains: few slots", plain},
        {"chains: no slots for drafts", plain},
        {"chains: steps are lost: 2, 4, ...", plain},
        {"chains: all of it", plain},
        {"steps are overlapped", plain},
        {"steps are overlapped: few slots", plain},
        {"steps are overlapped: few blocks", plain},
        {"steps are overlapped: lost, too", plain},
    };
    int failed = 0;
    ways[0].options.draft_tokens = 0;
    ways[1].options.draft_tokens = 1;
    ways[3].options.draft_tokens = 16;
    ways[3].options.state_slots = 160;
    ways[4].options.times = 2;
    ways[5].options.chunk_tokens = 5;
    ways[6].options.n_blocks = 28;
    ways[6].options.times = 2;
    ways[7].options.state_slots = 24;
    ways[8].options.state_slots = 12;
    ways[9].options.lose_steps = 1;
    ways[10].options = (chains_options){.block_tokens = 4,
                                        .n_blocks = 28,
                                        .state_slots = 20,
                                        .max_running = 5,
                                        .draft_tokens = 3,
                                        .chunk_tokens = 5,
                                        .lose_steps = 1,
                                        .times = 3};
    for (size_t i = 11; i < sizeof ways / sizeof *ways; i++) {
        ways[i].options.overlapped = 1;
        ways[i].options.draft_tokens = 0; /* their states are in rings, here */
        ways[i].options.times = 2;
    }
    ways[12].options.state_slots = 11;
    ways[13].options.n_blocks = 28;
    ways[14].options.state_slots = 11;
    ways[14].options.n_blocks = 40;
    ways[14].options.chunk_tokens = 5;
    ways[14].options.lose_steps = 1;
    printf("%-34s %5s %8s %6s %6s %8s %9s %5s\n", "", "steps", "computed", "cached", "drafts",
           "accepted", "preempted", "hits");
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        failed |= run_chains_way(model, ways[i].name, &ways[i].options, expected);
    return failed;
}

/* Recurrent state: all requests but the one with beams. */
static int run_recurrent(struct model *model, const struct requests *expected)
{
    const recurrent_options plain = recurrent_default_options();
    struct {
        const char *name;
        recurrent_options options;
    } ways[] = {
        {"one after the other", plain},
        {"together", plain},
        {"no prefix cache", plain},
        {"twice: prompts are cached", plain},
        {"samples are opened", plain},
        {"chunks of 5 tokens", plain},
        {"blocks of 7 tokens", plain},
        {"blocks of 8, units of 4", plain},
        {"few blocks: recompute", plain},
        {"few slots: recompute", plain},
        {"rolled back", plain},
        {"steps are lost: 2, 4, 8, ...", plain},
        {"all of it", plain},
    };
    int failed = 0;
    ways[0].options.max_running = 1;
    ways[0].options.fork = ways[4].options.fork = 0;
    ways[2].options.prefix_cache = 0;
    ways[3].options.times = 2;
    ways[5].options.chunk_tokens = 5;
    ways[6].options.block_tokens = 7;
    ways[7].options.block_tokens = 8;
    ways[7].options.unit_tokens = 4;
    ways[8].options.n_blocks = 28;
    ways[9].options.state_slots = 6;
    ways[10].options.roll_back = 1;
    ways[11].options.lose_steps = 1;
    ways[12].options = (recurrent_options){.block_tokens = 4,
                                           .n_blocks = 28,
                                           .state_slots = 7,
                                           .max_running = 5,
                                           .chunk_tokens = 5,
                                           .prefix_cache = 1,
                                           .roll_back = 1,
                                           .lose_steps = 1,
                                           .times = 3};
    printf("%-34s %5s %8s %6s %9s %6s %4s %5s %4s\n", "", "steps", "computed", "cached",
           "preempted", "rolled", "kept", "hits", "lost");
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        failed |= run_recurrent_way(model, ways[i].name, &ways[i].options, expected);
    failed |= run_chains(model, expected);
    return failed;
}

/* A model's requests: first by plain.c, then in each way. */
static int run_model(const char *name, const model_config *config,
                     int (*run_ways)(struct model *, const struct requests *))
{
    static struct requests expected;
    struct model *model = model_create(config);
    if (model == NULL)
        return 1;
    int failed = 0;
    make_requests(&expected);
    for (uint32_t i = 0; i < N_REQUESTS; i++)
        failed |= plain_generate(model, &expected.generations[i]);
    printf("%s\n", name);
    print_tokens(&expected);
    if (!failed)
        failed = run_ways(model, &expected);
    if (!failed && config->recurrent_layers == 0) /* trees are refused with a state */
        failed = run_speculations(model, &expected);
    model_destroy(model);
    return failed;
}

int main(int argc, char **argv)
{
    model_config config = {.n_layers = 3,
                           .n_heads = 6,
                           .n_kv_heads = 2,
                           .head_size = 16,
                           .width = 48,
                           .hidden = 96,
                           .vocabulary = 211,
                           .max_tokens = 256,
                           .seed = 2,
                           .theta = 10000.0};
    if (argc > 1 && strcmp(argv[1], "--bench") == 0)
        return bench_run();
    int failed = run_model("full attention", &config, run_full);
    config.window_layers = 1u << 1;
    config.sink_tokens = 3;
    config.recent_tokens = 7;
    failed |= run_model("\nlayer 1 sees 3 sinks and 7 recent tokens", &config, run_hybrid);
    config.window_layers = 0;
    config.recurrent_layers = 1u << 0 | 1u << 2;
    failed |= run_model("\nlayers 0 and 2 have a recurrent state", &config, run_recurrent);
    return failed;
}
