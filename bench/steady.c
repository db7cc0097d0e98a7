/* A full cache in steady use: 256 sequences grow by a token at a time, fork, are cut and start
 * anew, and every block is taken by eviction. Each call is timed alone.
 *
 * What a call does itself takes about as long when the same calls are made again; what the system
 * or another machine on the same processor does to it does not come again. So the calls are made in
 * three passes, and the time of a slow call is the smallest of its three. The system tells of
 * involuntary switches and page faults of slow calls. An idle loop shows what the machine does to a
 * program that calls nothing. */
#include "steady.h"

#include <stdlib.h>
#include <string.h>

#include "world.h"

enum {
    PASSES = 3,
    LIVE = 256,
    MAX_TOKENS = 1024,
    LEAST_PROMPT = 64,
    PROMPT_RANGE = 256,
    COPIES = LIVE + 1 + 64, /* as many as wait */
    RECENT = 1024,          /* prompts that are opened again */
    SLOW_NS = 10000,
    MOST_SLOW = 1 << 20,
    STEPS_OF_TWO = 32, /* of the histogram, to twice the value */
    BUCKETS = 64 * STEPS_OF_TWO
};

enum { OPEN, EXTEND, COMMIT, FORK, TRUNCATE, CLOSE, PLAN, N_KINDS };

static const char *const kind_names[N_KINDS] = {"open",     "extend", "commit", "fork",
                                                "truncate", "close",  "plan"};

typedef struct slow_call {
    uint64_t number;
    double ns;
    int kind;
    uint32_t n_tokens; /* that it was given */
    long switches;     /* involuntary, since the call before the last slow one at most */
    long faults;
} slow_call;

typedef struct pass {
    uint64_t (*counts)[BUCKETS]; /* [N_KINDS] */
    uint64_t n_of[N_KINDS];
    double longest[N_KINDS]; /* ns */
    slow_call *slow;         /* [n_slow] */
    uint32_t n_slow;
} pass;

typedef struct run {
    world *w;
    pass *p;
    double by_ns;
    uint64_t slow_ticks;
    uint64_t n_calls;
    uint64_t last; /* ticks at the end of the last call */
    struct rusage usage;
    uint64_t random;
    uint64_t first_number; /* prompts have this one + 0 .. */
    uint64_t n_prompts;
    kvp_seq seqs[LIVE];
    kvp_copy copies[COPIES];
    uint32_t n_tokens[LIVE];
} run;

/* ----------------------------------------------------------------------------------- histogram */

static uint32_t bucket_of(uint64_t value)
{
    if (value < STEPS_OF_TWO)
        return (uint32_t)value;
    const uint32_t bits = 63u - (uint32_t)__builtin_clzll(value) - 5;
    return (bits + 1) * STEPS_OF_TWO + (uint32_t)(value >> bits) % STEPS_OF_TWO;
}

static double bucket_end(uint32_t bucket)
{
    if (bucket < STEPS_OF_TWO)
        return bucket;
    const uint32_t bits = bucket / STEPS_OF_TWO - 1;
    return (double)((uint64_t)(STEPS_OF_TWO + bucket % STEPS_OF_TWO + 1) << bits);
}

/* In ticks; of one kind, or of all (N_KINDS). */
static double at_fraction(const pass *p, int kind, double fraction)
{
    uint64_t total = 0;
    for (int k = 0; k < N_KINDS; k++)
        total += kind == N_KINDS || k == kind ? p->n_of[k] : 0;
    uint64_t left = (uint64_t)((double)total * fraction);
    for (uint32_t b = 0; b < BUCKETS; b++) {
        uint64_t n = 0;
        for (int k = 0; k < N_KINDS; k++)
            n += kind == N_KINDS || k == kind ? p->counts[k][b] : 0;
        if (n > left)
            return bucket_end(b);
        left -= n;
    }
    return 0;
}

/* --------------------------------------------------------------------------------------- calls */

static void note_slow(run *r, int kind, uint32_t n_tokens, double ns)
{
    const struct rusage before = r->usage;
    r->usage = thread_usage();
    REQUIRE(r->p->n_slow < MOST_SLOW);
    r->p->slow[r->p->n_slow++] = (slow_call){r->n_calls,
                                             ns,
                                             kind,
                                             n_tokens,
                                             r->usage.ru_nivcsw - before.ru_nivcsw,
                                             r->usage.ru_minflt - before.ru_minflt};
    r->last = ticks();
}

/* What happens between calls is nothing of theirs. */
static uint64_t begin(run *r)
{
    const uint64_t now = ticks();
    if (now - r->last < r->slow_ticks)
        return now;
    r->usage = thread_usage();
    return ticks();
}

static void end(run *r, uint64_t start, int kind, uint32_t n_tokens)
{
    r->last = ticks();
    const uint64_t taken = r->last - start;
    r->p->counts[kind][bucket_of(taken)]++;
    r->p->n_of[kind]++;
    const double ns = (double)taken / r->by_ns;
    r->p->longest[kind] = ns > r->p->longest[kind] ? ns : r->p->longest[kind];
    if (taken > r->slow_ticks)
        note_slow(r, kind, n_tokens, ns);
    r->n_calls++;
}

static uint32_t draw(run *r, uint32_t n)
{
    return (uint32_t)((world_draw(&r->random) >> 32) * n >> 32);
}

/* A new prompt, or, half of the time, one of the last ones. */
static void open(run *r, uint32_t at)
{
    const uint32_t n_recent = r->n_prompts < RECENT ? (uint32_t)r->n_prompts : RECENT;
    const bool again = n_recent > 0 && draw(r, 2) == 0;
    const uint64_t number = again ? r->n_prompts - 1 - draw(r, n_recent) : r->n_prompts++;
    const uint32_t n = LEAST_PROMPT + (uint32_t)(number * 2654435761u % PROMPT_RANGE);
    world_fill_tokens(r->first_number + number, r->w->tokens, n);
    kvp_prompt prompt = {.struct_size = sizeof prompt, .tokens = r->w->tokens, .n_tokens = n};
    uint64_t start = begin(r);
    const kvp_status opened = kvp_seq_open(r->w->cache, r->w->ns, &prompt, &r->seqs[at], NULL);
    end(r, start, OPEN, n);
    REQUIRE_OK(opened);
    start = begin(r);
    const kvp_status committed = kvp_seq_commit(r->w->cache, r->seqs[at], n);
    end(r, start, COMMIT, n);
    REQUIRE_OK(committed);
    r->n_tokens[at] = n;
}

static void close(run *r, kvp_seq seq, uint32_t n_tokens)
{
    const uint64_t start = begin(r);
    const kvp_status status = kvp_seq_close(r->w->cache, seq, NULL);
    end(r, start, CLOSE, n_tokens);
    REQUIRE_OK(status);
}

static void grow(run *r, uint32_t at)
{
    const int32_t token = (int32_t)draw(r, 128256);
    uint64_t start = begin(r);
    const kvp_status extended = kvp_seq_extend(r->w->cache, r->seqs[at], &token, 1, 0);
    end(r, start, EXTEND, 1);
    REQUIRE_OK(extended);
    start = begin(r);
    const kvp_status committed = kvp_seq_commit(r->w->cache, r->seqs[at], ++r->n_tokens[at]);
    end(r, start, COMMIT, 1);
    REQUIRE_OK(committed);
}

static void fork_and_close(run *r, uint32_t at)
{
    kvp_seq child;
    const uint64_t start = begin(r);
    const kvp_status status = kvp_seq_fork(r->w->cache, r->seqs[at], KVP_END, 0, &child);
    end(r, start, FORK, r->n_tokens[at]);
    REQUIRE_OK(status);
    close(r, child, r->n_tokens[at]);
}

static void cut(run *r, uint32_t at)
{
    r->n_tokens[at] -= draw(r, LEAST_PROMPT - 1);
    const uint64_t start = begin(r);
    const kvp_status status = kvp_seq_truncate(r->w->cache, r->seqs[at], r->n_tokens[at], NULL);
    end(r, start, TRUNCATE, r->n_tokens[at]);
    REQUIRE_OK(status);
}

/* Copies of blocks that were cut and are shared wait in it. */
static void take_plan(run *r)
{
    uint32_t n;
    const uint64_t start = begin(r);
    const kvp_status status = kvp_plan_take(r->w->cache, r->copies, COPIES, &n);
    end(r, start, PLAN, 0);
    REQUIRE_OK(status);
}

static void turn(run *r)
{
    const uint32_t at = draw(r, LIVE);
    const uint32_t what = draw(r, 64);
    if (what == 0 || r->n_tokens[at] == MAX_TOKENS || r->n_tokens[at] < LEAST_PROMPT) {
        close(r, r->seqs[at], r->n_tokens[at]);
        open(r, at);
    } else if (what == 1) {
        fork_and_close(r, at);
    } else if (what == 2) {
        cut(r, at);
    } else if (what == 3) {
        take_plan(r);
    } else {
        grow(r, at);
    }
}

static void make_calls(const bench_options *options, double by_ns, pass *p)
{
    run *r = allocate(sizeof *r);
    r->p = p;
    r->by_ns = by_ns;
    r->slow_ticks = (uint64_t)(SLOW_NS * by_ns);
    r->random = options->seed;
    r->w = world_create(options, LIVE + 1, MAX_TOKENS, NULL);
    world_shuffle(r->w);
    r->first_number = r->w->next_number + (options->seed << 40);
    p->counts = allocate(N_KINDS * sizeof *p->counts);
    p->slow = allocate(MOST_SLOW * sizeof *p->slow);
    const uint64_t evicted = world_stats(r->w).evicted_blocks;
    r->usage = thread_usage();
    r->last = ticks();
    for (uint32_t i = 0; i < LIVE; i++)
        open(r, i);
    while (r->n_calls < options->steady)
        turn(r);
    REQUIRE(world_stats(r->w).evicted_blocks > evicted);
    REQUIRE_OK(kvp_cache_check(r->w->cache, 3, NULL));
    world_destroy(r->w);
    free(r);
}

/* -------------------------------------------------------------------------------------- report */

static void print_kind(const pass *p, int kind, double by_ns)
{
    static const double fractions[] = {0.5, 0.99, 0.9999};
    uint64_t n = 0;
    double longest = 0;
    for (int k = 0; k < N_KINDS; k++) {
        if (kind != N_KINDS && k != kind)
            continue;
        n += p->n_of[k];
        longest = p->longest[k] > longest ? p->longest[k] : longest;
    }
    printf("%-10s %12llu", kind == N_KINDS ? "all" : kind_names[kind], (unsigned long long)n);
    for (size_t i = 0; i < 3; i++)
        printf(" %9.0f", at_fraction(p, kind, fractions[i]) / by_ns);
    printf(" %11.0f\n", longest);
}

static int compare_slow(const void *a, const void *b)
{
    const double x = ((const slow_call *)a)->ns;
    const double y = ((const slow_call *)b)->ns;
    return (x < y) - (x > y);
}

static void print_slow(const char *title, const slow_call *slow, uint32_t n, uint32_t most)
{
    printf("\n%s: %u\n", title, n);
    for (uint32_t i = 0; i < n && i < most; i++)
        printf("  %11.0f ns  %-8s of %4u tokens, call %llu; switches %ld, page faults %ld\n",
               slow[i].ns, kind_names[slow[i].kind], slow[i].n_tokens,
               (unsigned long long)slow[i].number, slow[i].switches, slow[i].faults);
}

/* Keeps those that are slow in this pass, too, with the smaller time. Both are in order. */
static uint32_t keep_slow(slow_call *slow, uint32_t n, const pass *also)
{
    uint32_t n_kept = 0;
    uint32_t j = 0;
    for (uint32_t i = 0; i < n; i++) {
        while (j < also->n_slow && also->slow[j].number < slow[i].number)
            j++;
        if (j < also->n_slow && also->slow[j].number == slow[i].number)
            slow[n_kept++] = also->slow[j].ns < slow[i].ns ? also->slow[j] : slow[i];
    }
    return n_kept;
}

/* By falling times. */
static void print_longest_of_kinds(const slow_call *slow, uint32_t n)
{
    for (int kind = 0; kind < N_KINDS; kind++) {
        uint32_t n_of = 0;
        const slow_call *first = NULL;
        for (uint32_t i = 0; i < n; i++) {
            if (slow[i].kind == kind) {
                first = first ? first : &slow[i];
                n_of++;
            }
        }
        if (first)
            printf("  %-8s %u calls, at most %.0f ns\n", kind_names[kind], n_of, first->ns);
    }
}

/* An idle loop that reads the counter: its gaps are the machine's. */
static void print_idle(double by_ns, double seconds)
{
    const uint64_t slow = (uint64_t)(SLOW_NS * by_ns);
    const uint64_t end_at = ticks() + (uint64_t)(seconds * 1e9 * by_ns);
    uint64_t longest = 0;
    uint32_t n = 0;
    const struct rusage before = thread_usage();
    for (uint64_t last = ticks(), now; last < end_at; last = now) {
        now = ticks();
        longest = now - last > longest ? now - last : longest;
        n += now - last > slow;
    }
    const struct rusage after = thread_usage();
    printf("\nidle loop of %.1f s: %u gaps over %d us, longest %.0f ns, %ld switches\n", seconds, n,
           SLOW_NS / 1000, (double)longest / by_ns, after.ru_nivcsw - before.ru_nivcsw);
}

int steady(const bench_options *options)
{
    const double by_ns = ticks_by_ns();
    pass *passes = allocate(PASSES * sizeof *passes);
    print_machine(stdout);
    const uint64_t start = now_ns();
    for (int i = 0; i < PASSES; i++)
        make_calls(options, by_ns, &passes[i]);
    const double seconds = (double)(now_ns() - start) / 1e9 / PASSES;
    printf("\n%-10s %12s %9s %9s %9s %11s   ns, first pass\n", "call", "calls", "p50", "p99",
           "p99.99", "max");
    for (int kind = 0; kind <= N_KINDS; kind++)
        print_kind(&passes[0], kind, by_ns);
    slow_call *always = allocate(MOST_SLOW * sizeof *always);
    uint32_t n = passes[0].n_slow;
    memcpy(always, passes[0].slow, n * sizeof *always);
    for (int i = 1; i < PASSES; i++)
        n = keep_slow(always, n, &passes[i]);
    qsort(always, n, sizeof *always, compare_slow);
    for (int i = 0; i < PASSES; i++) {
        char title[64];
        snprintf(title, sizeof title, "over 10 us in pass %d", i + 1);
        qsort(passes[i].slow, passes[i].n_slow, sizeof *always, compare_slow);
        print_slow(title, passes[i].slow, passes[i].n_slow, 3);
        free(passes[i].counts);
        free(passes[i].slow);
    }
    print_slow("over 10 us in each pass, with the smallest time", always, n, 5);
    print_longest_of_kinds(always, n);
    print_idle(by_ns, options->quick ? 0.05 : seconds);
    free(always);
    free(passes);
    return 0;
}
