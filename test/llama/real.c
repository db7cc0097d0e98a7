/* kvp_llama_real: the engine over the real llama.cpp, with a real model.
 *
 *   kvp_llama_real MODEL.gguf scene      eight conversations; what is counted and compared
 *   kvp_llama_real MODEL.gguf f32        the same with f32 weights and KV, three layers
 *   kvp_llama_real MODEL.gguf cells      with few cells everything is finished
 *   kvp_llama_real MODEL.gguf host       with fewer cells, and a host tier
 *   kvp_llama_real MODEL.gguf disk       and a disk, from which a second engine gets what it can
 *   kvp_llama_real MODEL.gguf forks      samples of one prompt
 *   kvp_llama_real MODEL.gguf bits       a request alone, to the bit
 *
 * With a second word "window" the model is a small one with a sliding window, in f32
 * (window_model.h), and only the tokenizer is the file's. "save FILE" writes it.
 *
 * Every logit from which a token is sampled is compared with those of the same tokens computed
 * alone in another context. Quantised weights amplify rounding: there llama.cpp differs from
 * itself when it computes in chunks of 64 instead of 256 tokens. 1.5 times the most that it does
 * in all waves of the run is allowed, as with flash attention. With f32 and without it, 1e-3 is,
 * and greedy tokens are equal where the best two differ by more.
 * Then one block's cells are exchanged for those of another conversation, and the same
 * comparison must fail. One step is aborted by llama.cpp's abort_callback. Between the waves the
 * engine is saved and restored. */
#include "engine.h"
#include "f32_model.h"
#include "window_model.h"

#include <kvpager/llama.h>
#ifdef KVP_REAL_DISK
#include <kvpager/llama_disk.h>
#endif

#include <llama.h>

#include <math.h>
#include <unistd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_TALKS = 8, SHARED = 560, OWN = 28, NEW = 12, TURN = 16, MOST = 1024, LAYERS = 3 };
enum { N_PLANTED = 2 }; /* conversations that are compared with a wrong block */

/* Tokens through the model. In the first wave every different one once, which takes wait_for_prefix
 * (without it 1,020); in the second what is new, and what was no full block of 16. */
enum {
    KEPT = (SHARED + OWN + NEW - 1) / 16 * 16,
    FIRST_LEAST = SHARED + N_TALKS * (OWN + NEW - 1),
    SECOND_LEAST = N_TALKS * (SHARED + OWN + NEW + TURN - KEPT + NEW - 1)
};

/* One conversation. logits[k]: from which token n_tokens - n_logits + k was sampled. */
typedef struct talk {
    int32_t tokens[MOST];
    uint32_t n_tokens;
    uint32_t n_logits;
    float *logits; /* [NEW x vocabulary] */
} talk;

typedef struct scene {
    struct llama_model *model;
    uint32_t n_vocab;
    enum ggml_type kv_type;
    uint32_t window;
    uint32_t host_blocks;
    const char *disk; /* a store's URL; NULL: none */
    kvp_llama *engine;
    kvp_ns ns;
    talk talks[N_TALKS];
    double own_most;    /* the largest difference of llama.cpp from itself so far */
    uint32_t n_audited; /* so many of them are computed alone, too: all, or enough for a plant */
} scene;

static void stop(const char *what, long long a)
{
    printf("failed: %s (%lld)\n", what, a);
    exit(1);
}

static void must(kvp_status status, const char *what)
{
    if (status != KVP_OK)
        stop(what, status);
}

/* ------------------------------------------------------------------------------------------
 * text */

static void append_text(const scene *s, talk *t, uint32_t seed, uint32_t n)
{
    static const char *const who[] = {"The clerk", "A baker", "Our pilot", "The smith", "My aunt"};
    static const char *const does[] = {"counts", "forgets", "paints", "repairs", "sells"};
    static const char *const what[] = {"seven boats", "the old bridge", "a green lamp", "two maps",
                                       "every letter"};
    char text[128];
    int32_t tokens[64];
    const uint32_t end = t->n_tokens + n;
    while (t->n_tokens < end) {
        seed = seed * 1664525u + 1013904223u;
        const int n_chars = snprintf(text, sizeof text, " %s %s %s on day %u.", who[seed >> 8 & 3],
                                     does[(seed >> 12) % 5], what[(seed >> 16) % 5], seed >> 22);
        const int n_got = llama_tokenize(llama_model_get_vocab(s->model), text, n_chars, tokens, 64,
                                         false, false);
        for (int i = 0; i < n_got && t->n_tokens < end; i++)
            t->tokens[t->n_tokens++] = tokens[i];
    }
}

/* ----------------------------------------------------------------------------------- the engine */

static struct llama_context_params params_of(const scene *s, uint32_t n_ctx)
{
    struct llama_context_params params = llama_context_default_params();
    params.n_ctx = n_ctx;
    params.n_batch = params.n_ubatch = 512;
    params.n_threads = params.n_threads_batch = 1; /* the fastest beside other programs */
    params.type_k = params.type_v = s->kv_type;
    params.flash_attn_type = s->host_blocks > 0            ? LLAMA_FLASH_ATTN_TYPE_ENABLED
                             : s->kv_type == GGML_TYPE_F32 ? LLAMA_FLASH_ATTN_TYPE_DISABLED
                                                           : LLAMA_FLASH_ATTN_TYPE_AUTO;
    return params;
}

static void make_engine(scene *s, uint32_t n_cells)
{
    kvp_llama_config config;
    kvp_sched_config sched;
    kvp_config cache;
    kvp_why why;
    const struct llama_context_params params = params_of(s, n_cells);
    kvp_llama_config_init(&config);
    kvp_sched_config_init(&sched);
    kvp_config_init(&cache);
    if (s->disk != NULL) {
        sched.max_loading = N_TALKS;
        cache.max_loads = N_TALKS;
        config.cache = &cache;
    }
    if (s->host_blocks > 0) {
        sched.preempt = KVP_PREEMPT_SWAP;
        config.sched = &sched;
        config.host_blocks = s->host_blocks;
        config.stretch_tokens = 128;
    }
    config.max_running = N_TALKS;
    config.step_tokens = 512;
    const kvp_status status = kvp_llama_create(&config, s->model, &params, &s->engine, &why);
    if (status != KVP_OK)
        stop(why.text, status);
}

static void open_namespace(scene *s)
{
    must(kvp_ns_open(kvp_llama_cache(s->engine), "", 0, &s->ns), "namespace");
}

static void start_engine(scene *s, uint32_t n_cells)
{
    make_engine(s, n_cells);
    open_namespace(s);
}

static void submit_all(scene *s)
{
    for (uint32_t i = 0; i < N_TALKS; i++) {
        talk *t = &s->talks[i];
        const kvp_prompt prompt = {
            .struct_size = sizeof prompt, .tokens = t->tokens, .n_tokens = t->n_tokens, .tag = i};
        const kvp_submission submission = {.struct_size = sizeof submission,
                                           .prompt = &prompt,
                                           .ns = s->ns,
                                           .max_new_tokens = NEW};
        kvp_request request;
        t->n_logits = 0;
        must(kvp_sched_submit(kvp_llama_sched(s->engine), &submission, &request, NULL), "submit");
    }
}

static int32_t best_of(const float *logits, uint32_t n)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < n; i++)
        if (logits[i] > logits[best])
            best = i;
    return (int32_t)best;
}

static void audit(const scene *s)
{
    kvp_violation violation;
    kvp_llama_stats stats;
    if (kvp_llama_check(s->engine, &violation) != KVP_OK)
        stop(violation.detail, (long long)violation.object);
    kvp_llama_stats_get(s->engine, &stats);
    if ((stats.second_ids > 0) != (s->window > 0) && stats.open_ids > 0)
        stop("second ids", stats.second_ids);
}

static void sample(scene *s, const kvp_step *step)
{
    int32_t tokens[N_TALKS];
    kvp_request_info info;
    uint32_t at = 0;
    for (uint32_t i = 0; i < step->n_seqs; i++) {
        if (step->seqs[i].n_sampled == 0)
            continue;
        must(kvp_request_info_get(kvp_llama_sched(s->engine), step->seqs[i].request, &info),
             "info");
        talk *t = &s->talks[info.tag];
        const float *logits = kvp_llama_logits(s->engine, at);
        memcpy(t->logits + (size_t)t->n_logits++ * s->n_vocab, logits, s->n_vocab * sizeof *logits);
        tokens[at++] = t->tokens[t->n_tokens++] = best_of(logits, s->n_vocab);
    }
    must(kvp_llama_finish(s->engine, tokens, NULL, NULL), "finish");
}

/* Runs what was submitted; the tokens that ran through the model. */
static uint64_t run_wave(scene *s)
{
    kvp_step step;
    kvp_llama_stats before, after;
    kvp_llama_stats_get(s->engine, &before);
    for (;;) {
        must(kvp_llama_run(s->engine, &step), "run");
        if (step.n_seqs == 0 && step.n_loading == 0)
            break;
        if (step.n_seqs > 0)
            sample(s, &step);
        audit(s);
    }
    kvp_llama_stats_get(s->engine, &after);
    return after.decoded_tokens - before.decoded_tokens;
}

/* ------------------------------------------------------------------------------------ the truth */

typedef struct difference {
    double most;
    uint32_t greedy; /* tokens that differ although the best two do by more than 1e-3 */
} difference;

/* Computes the conversation alone, in chunks; `by_steps`: one ends where the prompt does, and those
 * behind it have one token. Gives its logits as talk.logits. */
static void compute_alone(const scene *s, const talk *t, uint32_t chunk, int by_steps, float *out)
{
    struct llama_context *context = llama_init_from_model(s->model, params_of(s, MOST));
    struct llama_batch batch = llama_batch_init((int32_t)chunk, 0, 1);
    const uint32_t n = t->n_tokens - 1, first = t->n_tokens - t->n_logits - 1;
    if (context == NULL)
        stop("a context", chunk);
    for (uint32_t begin = 0, end; begin < n; begin = end) {
        end = begin + chunk < n ? begin + chunk : n;
        if (by_steps && end > first)
            end = begin <= first ? first + 1 : begin + 1;
        batch.n_tokens = (int32_t)(end - begin);
        for (uint32_t i = begin; i < end; i++) {
            batch.token[i - begin] = t->tokens[i];
            batch.pos[i - begin] = (llama_pos)i;
            batch.n_seq_id[i - begin] = 1;
            batch.seq_id[i - begin][0] = 0;
            batch.logits[i - begin] = i >= first;
        }
        if (llama_decode(context, batch) != 0)
            stop("decode alone", begin);
        for (uint32_t i = begin < first ? first : begin; i < end; i++)
            memcpy(out + (size_t)(i - first) * s->n_vocab,
                   llama_get_logits_ith(context, (int32_t)(i - begin)), s->n_vocab * sizeof *out);
    }
    llama_batch_free(batch);
    llama_free(context);
}

static double gap_of_best(const float *logits, uint32_t n)
{
    const int32_t best = best_of(logits, n);
    float second = -INFINITY;
    for (uint32_t i = 0; i < n; i++)
        if ((int32_t)i != best && logits[i] > second)
            second = logits[i];
    return (double)(logits[best] - second);
}

static void compare(const scene *s, const talk *t, const float *a, const float *b, difference *d)
{
    for (uint32_t k = 0; k < t->n_logits; k++) {
        const float *x = a + (size_t)k * s->n_vocab, *y = b + (size_t)k * s->n_vocab;
        for (uint32_t i = 0; i < s->n_vocab; i++)
            d->most = fmax(d->most, fabs((double)(x[i] - y[i])));
        d->greedy +=
            best_of(x, s->n_vocab) != best_of(y, s->n_vocab) && gap_of_best(y, s->n_vocab) > 1e-3;
    }
}

/* Adds the engine's difference from the truth to `ours`, and raises own_most: the difference of
 * the truth from itself in other chunks. */
static void compare_all(scene *s, difference *ours)
{
    const size_t n_bytes = (size_t)NEW * s->n_vocab * sizeof(float);
    float *truth = malloc(n_bytes), *other = malloc(n_bytes);
    difference theirs = {0};
    if (truth == NULL || other == NULL)
        stop("memory", 0);
    for (uint32_t i = 0; i < s->n_audited; i++) {
        const talk *t = &s->talks[i];
        compute_alone(s, t, 256, 0, truth);
        compare(s, t, t->logits, truth, ours);
        compute_alone(s, t, 64, 0, other);
        compare(s, t, other, truth, &theirs);
    }
    s->own_most = fmax(s->own_most, theirs.most);
    printf("  logits: largest difference so far %.4g; llama.cpp in chunks of 64 and 256: %.4g; "
           "greedy tokens that differ: %u and %u\n",
           ours->most, s->own_most, ours->greedy, theirs.greedy);
    free(truth);
    free(other);
}

static int is_right(const scene *s, const difference *ours)
{
    if (s->kv_type == GGML_TYPE_F32 && s->host_blocks == 0)
        return ours->most <= 1e-3 && ours->greedy == 0;
    return ours->most <= 1.5 * s->own_most;
}

/* ----------------------------------------------------------------------------------- the scenes */

static void begin_talks(scene *s)
{
    for (uint32_t i = 0; i < N_TALKS; i++) {
        s->talks[i].n_tokens = 0;
        append_text(s, &s->talks[i], 7, SHARED);
        append_text(s, &s->talks[i], 100 + i, OWN);
    }
}

static void go_on(scene *s)
{
    for (uint32_t i = 0; i < N_TALKS; i++)
        append_text(s, &s->talks[i], 200 + i, TURN);
    submit_all(s);
}

/* The cells of the first conversation's own block get those of the second's: wrong content. */
static void plant(scene *s)
{
    const uint32_t idx = SHARED / 16;
    const llama_pos begin = (llama_pos)(idx * 16), end = begin + 16;
    llama_memory_t memory = llama_get_memory(kvp_llama_context(s->engine));
    const kvpi_ids *ids = &s->engine->ids;
    int32_t blocks[2];
    for (uint32_t i = 0; i < 2; i++) {
        const kvp_prompt prompt = {
            .struct_size = sizeof prompt, .tokens = s->talks[i].tokens, .n_tokens = SHARED + OWN};
        const int32_t *row;
        uint32_t n_blocks;
        kvp_seq seq;
        must(kvp_seq_open(kvp_llama_cache(s->engine), s->ns, &prompt, &seq, NULL), "open");
        must(kvp_seq_row(kvp_llama_cache(s->engine), seq, 0, &row, &n_blocks), "row");
        blocks[i] = row[idx];
        must(kvp_seq_close(kvp_llama_cache(s->engine), seq, NULL), "close");
    }
    const llama_seq_id right = (llama_seq_id)ids->places[blocks[0]].id;
    const llama_seq_id wrong = (llama_seq_id)ids->places[blocks[1]].id;
    if (right == wrong || blocks[0] == blocks[1])
        stop("two blocks to exchange", right);
    (void)llama_memory_seq_rm(memory, right, begin, end);
    llama_memory_seq_cp(memory, wrong, right, begin, end);
}

static void print_stats(const scene *s)
{
    kvp_llama_stats stats;
    kvp_sched_stats sched;
    kvp_llama_stats_get(s->engine, &stats);
    must(kvp_sched_stats_get(kvp_llama_sched(s->engine), &sched), "statistics");
    printf(
        "  decodes %llu, seq_cp %llu, seq_rm %llu, keepers %u with %u blocks, preemptions %llu\n",
        (unsigned long long)stats.decodes, (unsigned long long)stats.copies,
        (unsigned long long)stats.removals, stats.keepers, stats.kept_blocks,
        (unsigned long long)sched.preemptions);
    if (s->host_blocks > 0)
        printf("  host tier: pieces out %llu, in %llu, swapped out %llu, %.1f MiB, slow %llu\n",
               (unsigned long long)stats.stretches_out, (unsigned long long)stats.stretches_in,
               (unsigned long long)sched.swapped_out, (double)stats.host_bytes / 1048576,
               (unsigned long long)stats.slow_blocks);
}

static bool abort_at_once(void *data)
{
    ++*(uint32_t *)data;
    return true;
}

/* The second step is aborted while it computes, and leaves nothing. Tokens of the first one. */
static uint64_t abort_second(scene *s)
{
    kvp_step first, second;
    kvp_llama_stats stats;
    uint32_t n_asked = 0;
    must(kvp_llama_run(s->engine, &first), "run");
    const uint64_t n_tokens = first.n_tokens;
    sample(s, &first);
    llama_set_abort_callback(kvp_llama_context(s->engine), abort_at_once, &n_asked);
    const kvp_status status = kvp_llama_run(s->engine, &second);
    llama_set_abort_callback(kvp_llama_context(s->engine), NULL, NULL);
    kvp_llama_stats_get(s->engine, &stats);
    audit(s);
    if (status != KVP_E_AGAIN || n_asked == 0 || stats.failed_decodes != 1)
        stop("a decode that is aborted", status);
    return n_tokens;
}

/* The engine ends, and another one begins with what it saved. */
static void restart(scene *s)
{
    char path[64];
    kvp_llama_restored restored = {0};
    kvp_llama_stats stats;
    kvp_why why;
    (void)snprintf(path, sizeof path, "kvp_llama_real.%d.snapshot", (int)s->kv_type);
    if (kvp_llama_save(s->engine, "", path, &why) != KVP_OK)
        stop(why.text, 0);
    kvp_llama_stats_get(s->engine, &stats);
    kvp_llama_destroy(s->engine);
    make_engine(s, 4096);
    if (kvp_llama_load(s->engine, "", path, &restored, &why) != KVP_OK)
        stop(why.text, 0);
    (void)remove(path);
    audit(s);
    open_namespace(s);
    printf("restart: %llu blocks restored, %llu dropped\n", (unsigned long long)restored.blocks,
           (unsigned long long)restored.dropped_blocks);
    if (restored.dropped_blocks > 0 || restored.blocks < stats.kept_blocks)
        stop("a restart", (long long)restored.blocks);
}

static int run_scene(scene *s)
{
    difference ours = {0}, planted = {0};
    start_engine(s, 4096);
    begin_talks(s);
    submit_all(s);
    const uint64_t first = abort_second(s) + run_wave(s);
    printf("wave 1: %llu tokens through the model (without sharing %d)\n",
           (unsigned long long)first, N_TALKS * (SHARED + OWN + NEW - 1));
    compare_all(s, &ours);
    restart(s);
    go_on(s);
    const uint64_t second = run_wave(s);
    printf("wave 2: %llu tokens through the model (without sharing %d)\n",
           (unsigned long long)second, N_TALKS * (SHARED + OWN + NEW + TURN + NEW - 1));
    compare_all(s, &ours);
    print_stats(s);
    begin_talks(s);
    plant(s);
    s->n_audited = N_PLANTED;
    submit_all(s);
    (void)run_wave(s);
    printf("a wrong block:\n");
    compare_all(s, &planted);
    kvp_llama_destroy(s->engine);
    const int right = is_right(s, &ours), caught = !is_right(s, &planted);
    const int few = first == FIRST_LEAST && second == SECOND_LEAST;
    if (!few || !right || !caught)
        printf("failed: %s\n", !right ? "logits" : !caught ? "a wrong block passed" : "tokens");
    return few && right && caught;
}

/* Less than all conversations need: they take turns, and all finish. */
static int run_cells(scene *s)
{
    static const uint32_t cells[] = {1024, 768};
    difference ours = {0};
    for (uint32_t i = 0; i < 2; i++) {
        start_engine(s, cells[i]);
        begin_talks(s);
        submit_all(s);
        const uint64_t first = run_wave(s);
        go_on(s);
        const uint64_t second = run_wave(s);
        printf("%u cells: %llu and %llu tokens through the model\n", cells[i],
               (unsigned long long)first, (unsigned long long)second);
        print_stats(s);
        for (uint32_t k = 0; k < N_TALKS; k++)
            if (s->talks[k].n_logits != NEW)
                stop("a conversation was not finished", k);
        if (s->window > 0)
            compare_all(s, &ours);
        kvp_llama_destroy(s->engine);
    }
    return s->window == 0 || is_right(s, &ours);
}

/* A request alone in a new engine gets what llama_decode gives for the same steps, to the bit. */
static int run_bits(scene *s)
{
    const size_t n_bytes = (size_t)NEW * s->n_vocab * sizeof(float);
    float *truth = malloc(n_bytes);
    talk *t = &s->talks[0];
    kvp_request request;
    s->kv_type = GGML_TYPE_F16; /* with flash attention */
    start_engine(s, MOST);
    begin_talks(s);
    const kvp_prompt prompt = {
        .struct_size = sizeof prompt, .tokens = t->tokens, .n_tokens = t->n_tokens};
    const kvp_submission submission = {
        .struct_size = sizeof submission, .prompt = &prompt, .ns = s->ns, .max_new_tokens = NEW};
    t->n_logits = 0;
    must(kvp_sched_submit(kvp_llama_sched(s->engine), &submission, &request, NULL), "submit");
    (void)run_wave(s);
    kvp_llama_destroy(s->engine);
    if (truth == NULL)
        stop("memory", 0);
    compute_alone(s, t, 512, 1, truth);
    const int same = memcmp(truth, t->logits, n_bytes) == 0;
    printf("steps of 512 tokens: logits are %s\n", same ? "the same" : "others");
    free(truth);
    return same;
}

/* Sample i of a prompt goes on with its i-th best token, as conversation i. */
static int run_forks(scene *s)
{
    kvp_step step;
    kvp_request request;
    kvp_step_end end;
    int32_t tokens[N_TALKS];
    difference ours = {0};
    start_engine(s, 2048);
    begin_talks(s);
    const kvp_prompt prompt = {
        .struct_size = sizeof prompt, .tokens = s->talks[0].tokens, .n_tokens = SHARED + OWN};
    const kvp_submission submission = {.struct_size = sizeof submission,
                                       .prompt = &prompt,
                                       .ns = s->ns,
                                       .n_samples = N_TALKS,
                                       .max_new_tokens = NEW};
    must(kvp_sched_submit(kvp_llama_sched(s->engine), &submission, &request, NULL), "submit");
    for (uint32_t i = 0; i < N_TALKS; i++) {
        memcpy(s->talks[i].tokens, s->talks[0].tokens, (SHARED + OWN) * sizeof(int32_t));
        s->talks[i].n_logits = 0;
    }
    for (must(kvp_llama_run(s->engine, &step), "run"); step.n_seqs > 0;
         must(kvp_llama_run(s->engine, &step), "run")) {
        uint32_t at = 0;
        for (uint32_t i = 0; i < step.n_seqs; i++)
            for (uint32_t k = 0; k < step.seqs[i].n_sampled; k++, at++) {
                talk *t = &s->talks[step.seqs[i].sample + k];
                const float *logits = kvp_llama_logits(s->engine, at);
                memcpy(t->logits + (size_t)t->n_logits++ * s->n_vocab, logits,
                       s->n_vocab * sizeof *logits);
                tokens[at] = best_of(logits, s->n_vocab) + (t->n_logits == 1 ? (int32_t)k : 0);
                tokens[at] %= (int32_t)s->n_vocab;
                t->tokens[t->n_tokens++] = tokens[at];
            }
        must(kvp_llama_finish(s->engine, tokens, NULL, &end), "finish");
        audit(s);
    }
    compare_all(s, &ours);
    print_stats(s);
    kvp_llama_destroy(s->engine);
    return is_right(s, &ours);
}

/* The same with a host tier: what was evicted or swapped out comes back, and is right. */
static int run_host(scene *s)
{
    s->host_blocks = 512;
    start_engine(s, 640 + 128);
    begin_talks(s);
    submit_all(s);
    const uint64_t first = run_wave(s);
    difference ours = {0};
    compare_all(s, &ours);
    go_on(s);
    const uint64_t second = run_wave(s);
    compare_all(s, &ours);
    printf("640 cells and a host tier: %llu and %llu tokens through the model\n",
           (unsigned long long)first, (unsigned long long)second);
    print_stats(s);
    kvp_llama_stats stats;
    kvp_llama_stats_get(s->engine, &stats);
    kvp_llama_destroy(s->engine);
    return is_right(s, &ours) && stats.stretches_in > 0;
}

#ifdef KVP_REAL_DISK

enum { FROM_DISK = 512 }; /* tokens of whole records */

static void open_disk(scene *s, uint32_t n_cells)
{
    kvp_llama_disk_config config;
    kvp_why why;
    char name[32]; /* what an earlier run of the test has left is another namespace's */
    (void)snprintf(name, sizeof name, "%d", (int)getpid());
    make_engine(s, n_cells);
    kvp_llama_disk_config_init(&config);
    config.url = s->disk;
    config.model = "test";
    if (kvp_llama_disk_open(s->engine, &config, &why) != KVP_OK)
        stop(why.text, 0);
    open_namespace(s);
    must(kvp_llama_disk_space(s->engine, s->ns, name, strlen(name), 0), "a name");
}

/* KV of the common prefix, a sum for each token: bytes of several cells have them in any order. */
static void sum_prefix(const scene *s, kvp_hash *out_sums)
{
    kvpi_ids *ids = &s->engine->ids;
    const kvp_hash none = {{0}};
    const kvp_prompt prompt = {
        .struct_size = sizeof prompt, .tokens = s->talks[0].tokens, .n_tokens = SHARED};
    const int32_t *row;
    uint32_t n_blocks;
    kvp_seq seq;
    kvpi_bytes bytes = {0};
    must(kvp_seq_open(kvp_llama_cache(s->engine), s->ns, &prompt, &seq, NULL), "open");
    must(kvp_seq_row(kvp_llama_cache(s->engine), seq, 0, &row, &n_blocks), "row");
    for (uint32_t i = 0; i < FROM_DISK; i++) {
        bytes.n = 0;
        must(kvpi_state_get(ids, ids->places[row[i / 16]].id, i, i + 1, &bytes), "a token's KV");
        out_sums[i] = kvpi_state_sum(&none, bytes.data, bytes.n);
    }
    kvpi_state_free(&bytes);
    must(kvp_seq_close(kvp_llama_cache(s->engine), seq, NULL), "close");
}

/* What a new engine finds on the disk of the one before are the same bytes, and is not computed
 * again. (Logits are printed: what is computed behind it is cut into other chunks.) */
static int run_disk(scene *s)
{
    char url[] = "file:kvp_llama_real.disk?size=1GiB";
    kvp_hash sums[FROM_DISK], again[FROM_DISK];
    kvp_llama_disk_stats stats;
    difference ours = {0};
    s->disk = url;
    s->host_blocks = 512;
    open_disk(s, 4096);
    begin_talks(s);
    submit_all(s);
    const uint64_t first = run_wave(s);
    sum_prefix(s, sums);
    kvp_llama_destroy(s->engine);
    open_disk(s, 4096);
    kvp_llama_disk_stats_get(s->engine, &stats);
    const uint64_t n_records = stats.store.records;
    begin_talks(s);
    submit_all(s);
    const uint64_t second = run_wave(s);
    compare_all(s, &ours);
    sum_prefix(s, again);
    kvp_llama_disk_stats_get(s->engine, &stats);
    printf("disk: %llu and %llu tokens through the model; %llu records of %u tokens and %.1f MiB, "
           "%llu tokens read in %.1f ms\n",
           (unsigned long long)first, (unsigned long long)second, (unsigned long long)n_records,
           stats.record_tokens, (double)stats.record_bytes / 1048576,
           (unsigned long long)stats.loaded_tokens, (double)stats.load_ns / 1e6);
    print_stats(s);
    kvp_llama_destroy(s->engine);
    return memcmp(sums, again, sizeof sums) == 0 && stats.loaded_tokens == FROM_DISK &&
           second + FROM_DISK == first && (s->window == 0 || is_right(s, &ours));
}

#else

static int run_disk(scene *s)
{
    (void)s;
    stop("this build has no stores", 0);
    return 0;
}

#endif

/* -------------------------------------------------------------------------------------------
 * main */

static void quiet(enum ggml_log_level level, const char *text, void *data)
{
    (void)data;
    if (level == GGML_LOG_LEVEL_ERROR)
        fputs(text, stdout);
}

int main(int argc, char **argv)
{
    static scene s;
    if (argc != 3 && argc != 4)
        return 2;
    const int is_f32 = strcmp(argv[2], "f32") == 0;
    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    llama_log_set(quiet, NULL);
    llama_backend_init();
    s.model = argc == 4 ? window_model_load(argv[1])
              : is_f32  ? f32_model_load(argv[1], LAYERS)
                        : llama_model_load_from_file(argv[1], llama_model_default_params());
    if (s.model == NULL)
        stop("the model", 0);
    if (strcmp(argv[2], "save") == 0) {
        llama_model_save_to_file(s.model, argv[3]);
        return 0;
    }
    s.window = (uint32_t)llama_model_n_swa(s.model);
    s.n_vocab = (uint32_t)llama_vocab_n_tokens(llama_model_get_vocab(s.model));
    s.kv_type = is_f32 || argc == 4 ? GGML_TYPE_F32 : GGML_TYPE_F16;
    s.n_audited = N_TALKS;
    for (uint32_t i = 0; i < N_TALKS; i++) {
        s.talks[i].logits = calloc((size_t)NEW * s.n_vocab, sizeof(float));
        if (s.talks[i].logits == NULL)
            stop("memory", i);
    }
    const int right = strcmp(argv[2], "cells") == 0   ? run_cells(&s)
                      : strcmp(argv[2], "host") == 0  ? run_host(&s)
                      : strcmp(argv[2], "disk") == 0  ? run_disk(&s)
                      : strcmp(argv[2], "bits") == 0  ? run_bits(&s)
                      : strcmp(argv[2], "forks") == 0 ? run_forks(&s)
                                                      : run_scene(&s);
    for (uint32_t i = 0; i < N_TALKS; i++)
        free(s.talks[i].logits);
    llama_model_free(s.model);
    return !right;
}
