/* kvp_faults: see faults.h.
 *
 *   kvp_faults [--seed N] [--seeds N] [--most N] [--scene NAME]
 *   kvp_faults --scene NAME [--seed N] --seam NAME --at N
 *   kvp_faults --self-test        every planted defect must be found
 *
 * --seeds: runs of each scene, with seeds seed, seed + 1, ...; --most: when a seam is asked more
 * often in a run, so many of its requests fail, spread over all (0, the default: every one). --at:
 * this fault alone, in this process (0: none), and what is wrong with it. Exit status: 0 all is as
 * it should be; 1 not; 2 wrong usage.
 */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */

#include "core/cache/state.h"

#include "faults.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define SCENE_NAME(name) #name,
static const char *const seam_names[] = {SEAM_TABLE(SCENE_NAME)};
#undef SCENE_NAME

enum { MEMORY = 1u << SEAM_allocation | 1u << SEAM_mapping };
enum {
    MESSAGES = 1u << SEAM_message_lost | 1u << SEAM_message_twice | 1u << SEAM_message_damaged |
               1u << SEAM_message_swapped
};
enum {
    LINK = 1u << SEAM_message_cut | 1u << SEAM_link_broken | 1u << SEAM_link_busy |
           1u << SEAM_lend | 1u << SEAM_post | 1u << SEAM_take
};

const scene scenes[] = {
    {"calls", scene_calls, MEMORY | 1u << SEAM_write},
    {"log", scene_log, MEMORY},
    {"snapshot", scene_snapshot,
     1u << SEAM_mapping | 1u << SEAM_write | 1u << SEAM_read | 1u << SEAM_get | 1u << SEAM_put},
    {"sched", scene_sched, 1u << SEAM_allocation | 1u << SEAM_step},
    {"wire", scene_wire, 1u << SEAM_allocation | MESSAGES},
    {"transfer", scene_transfer, 1u << SEAM_allocation | MESSAGES | LINK},
    {"memory", scene_memory, MEMORY | 1u << SEAM_thread},
    {"attention", scene_attention, 1u << SEAM_allocation | 1u << SEAM_thread},
};
const uint32_t n_scenes = sizeof(scenes) / sizeof(*scenes);

/* A run, in memory that its process shares with the sweep. */
typedef struct run {
    seam which;
    uint64_t at; /* the request that fails, from 1; 0: none */
    plant planted;
    uint64_t n_asked[SEAMS];
    uint64_t n_failed;
    uint64_t digest;
    bool has_ended;
} run;

static run *now;
bool fault_quiet;

/* -------------------------------------------------------------------------------- inside a run */

bool fault_comes(seam which)
{
    const bool comes = !fault_quiet && ++now->n_asked[which] == now->at && now->which == which;
    now->n_failed += comes;
    return comes && now->planted != PLANT_GRANTED;
}

bool fault_is(seam which)
{
    return now->at != 0 && now->which == which;
}

bool fault_happened(void)
{
    return now->n_failed > 0;
}

uint32_t fault_wanted(seam which)
{
    return fault_is(which) ? (uint32_t)now->at : 0;
}

void fault_tell(seam which, uint32_t n_asked, bool has_failed)
{
    now->n_asked[which] = n_asked;
    now->n_failed += has_failed;
}

void fault_mix_number(uint64_t number)
{
    now->digest = (now->digest ^ number) * 0x9E3779B97F4A7C15u;
    now->digest ^= now->digest >> 29;
}

void fault_mix(const void *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        fault_mix_number(((const uint8_t *)bytes)[i]);
}

/* Everything that can be observed; a recording that runs does not see us look. */
static observed look(const world *w)
{
    const uint32_t was_on = w->cache->recorder.on;
    w->cache->recorder.on = 0;
    const observed o = observe(w);
    w->cache->recorder.on = was_on;
    return o;
}

fault_call fault_begin(const world *w)
{
    const wrap_held held = wrap_now();
    fault_call call = {.w = w,
                       .is_watched = w != NULL && now->at != 0 && !fault_quiet && !fault_happened(),
                       .had_happened = fault_happened(),
                       .held = held.allocations,
                       .mapped = held.mapped_bytes,
                       .threads = held.threads};
    if (call.is_watched)
        call.before = look(w);
    wrap_armed = true;
    return call;
}

static void change(const world *w)
{
    kvp_ns ns;
    if (w != NULL && kvp_ns_open(w->cache, "planted", 7, &ns) != KVP_OK)
        (void)kvp_cache_reset(w->cache); /* it has all the namespaces that it can have */
}

bool fault_end(fault_call *call, kvp_status status, kvp_status refused)
{
    const bool is_refused = fault_happened() && !call->had_happened;
    wrap_armed = false;
    if (is_refused) {
        if (now->planted == PLANT_LEAK)
            wrap_leak();
        else if (now->planted == PLANT_CHANGED)
            change(call->w);
        assert_int_equal(status, refused);
    }
    if (is_refused && refused != KVP_OK) {
        const wrap_held held = wrap_now();
        assert_int_equal(held.allocations, call->held);
        assert_int_equal(held.mapped_bytes, call->mapped);
        assert_int_equal(held.threads, call->threads);
        if (call->is_watched) {
            observed after = look(call->w);
            assert_true(same_observed(&call->before, &after));
            drop_observed(&after);
        }
        if (now->planted == PLANT_CHANGED_LATER)
            change(call->w);
    }
    if (call->is_watched)
        drop_observed(&call->before);
    return is_refused && refused != KVP_OK;
}

static void run_here(const scene *s, uint64_t seed)
{
    const wrap_held before = wrap_now();
    s->run(seed);
    const wrap_held after = wrap_now();
    assert_int_equal(after.allocations, 0);
    assert_int_equal(after.mapped_bytes, before.mapped_bytes);
    assert_int_equal(after.threads, 0);
    now->has_ended = true;
}

/* ------------------------------------------------------------------------------------ the sweep */

typedef struct options {
    uint64_t seed, n_seeds, most, at;
    const char *scene, *seam;
    bool self_test, is_single;
} options;

/* Run it in a process of its own: numbers, handles and addresses begin anew. */
static void run_apart(const scene *s, uint64_t seed, const run *what, run *out_run)
{
    memset(now, 0, sizeof(*now));
    now->which = what->which;
    now->at = what->at;
    now->planted = what->planted;
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        if (what->planted != PLANT_NOTHING && freopen("/dev/null", "w", stderr) == NULL)
            _exit(3);
        run_here(s, seed);
        _exit(0);
    }
    int status = -1;
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
        now->has_ended = false;
    *out_run = *now;
}

/* What is wrong with a run; NULL: nothing. */
static const char *judge(const run *clean, const run *faulty)
{
    return !faulty->has_ended                ? "did not end well"
           : faulty->n_failed != 1           ? "was not refused once"
           : faulty->digest != clean->digest ? "came to another end"
                                             : NULL;
}

static const char *sweep_at(const scene *s, uint64_t seed, const run *clean, const run *what)
{
    run faulty;
    run_apart(s, seed, what, &faulty);
    return judge(clean, &faulty);
}

static bool sweep_seam(const options *o, const scene *s, uint64_t seed, const run *clean,
                       seam which)
{
    const uint64_t n = clean->n_asked[which];
    const uint64_t most = o->most != 0 && o->most < n ? o->most : n;
    for (uint64_t i = 0; i < most; i++) {
        const run what = {.which = which, .at = 1 + i * n / most};
        const char *wrong = sweep_at(s, seed, clean, &what);
        if (wrong != NULL) {
            printf("kvp_faults: %s, seed %" PRIu64 ": %s %" PRIu64 " of %" PRIu64
                   " %s\nagain: kvp_faults --scene %s --seed %" PRIu64 " --seam %s --at %" PRIu64
                   "\n",
                   s->name, seed, seam_names[which], what.at, n, wrong, s->name, seed,
                   seam_names[which], what.at);
            return false;
        }
    }
    return true;
}

static bool sweep(const options *o, const scene *s)
{
    uint64_t n_asked[SEAMS] = {0}, n_failed[SEAMS] = {0};
    for (uint64_t seed = o->seed; seed < o->seed + o->n_seeds; seed++) {
        run clean;
        run_apart(s, seed, &(run){.at = 0}, &clean);
        if (!clean.has_ended) {
            printf("kvp_faults: %s, seed %" PRIu64 ": did not end well, and nothing failed\n",
                   s->name, seed);
            return false;
        }
        for (uint32_t i = 0; i < SEAMS; i++) {
            const uint64_t n = clean.n_asked[i];
            if (!sweep_seam(o, s, seed, &clean, (seam)i))
                return false;
            n_asked[i] += n;
            n_failed[i] += o->most != 0 && o->most < n ? o->most : n;
        }
    }
    for (uint32_t i = 0; i < SEAMS; i++) {
        if (n_asked[i] > 0) {
            printf("%-10s %-16s asked %7" PRIu64 ", refused %7" PRIu64 "\n", s->name, seam_names[i],
                   n_asked[i], n_failed[i]);
        } else if (s->seams >> i & 1) {
            printf("kvp_faults: %s: %s was never asked\n", s->name, seam_names[i]);
            return false;
        }
    }
    return true;
}

/* Every planted defect is found, at whichever allocation it is committed. */
static bool self_test(void)
{
    const scene *s = &scenes[0];
    run clean;
    run_apart(s, 1, &(run){.at = 0}, &clean);
    for (uint32_t p = PLANT_NOTHING + 1; p < PLANTS; p++) {
        const uint64_t n = clean.n_asked[SEAM_allocation];
        for (uint64_t at = 1; at <= n; at += 1 + n / 10) {
            const run what = {.which = SEAM_allocation, .at = at, .planted = (plant)p};
            if (sweep_at(s, 1, &clean, &what) == NULL) {
                printf("kvp_faults: planted defect %u was not found at %" PRIu64 "\n", p, at);
                return false;
            }
        }
    }
    printf("every planted defect was found\n");
    return true;
}

static int find(const char *const *names, uint32_t n, const char *name)
{
    for (uint32_t i = 0; i < n; i++)
        if (strcmp(names[i], name) == 0)
            return (int)i;
    return -1;
}

typedef struct single {
    const scene *scene;
    uint64_t seed;
} single;

static void run_single(void **state)
{
    const single *one = *state;
    run_here(one->scene, one->seed);
}

/* In this process, as a cmocka test: it says which assertion failed. */
static bool run_one(const options *o, const scene *s)
{
    single one = {s, o->seed};
    const struct CMUnitTest test[] = {cmocka_unit_test_prestate(run_single, &one)};
    const int which = o->seam == NULL ? 0 : find(seam_names, SEAMS, o->seam);
    if (which < 0)
        return false;
    *now = (run){.which = (seam)which, .at = o->at};
    const int n_wrong = cmocka_run_group_tests(test, NULL, NULL);
    printf("refused %" PRIu64 ", digest %016" PRIx64 "\n", now->n_failed, now->digest);
    return n_wrong == 0;
}

static bool read_options(int argc, char **argv, options *o)
{
    const struct {
        const char *name;
        uint64_t *to;
    } numbers[] = {
        {"--seed", &o->seed}, {"--seeds", &o->n_seeds}, {"--most", &o->most}, {"--at", &o->at}};
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        bool known = strcmp(argv[i], "--self-test") == 0;
        o->self_test = o->self_test || known;
        if (strcmp(argv[i], "--scene") == 0 || strcmp(argv[i], "--seam") == 0) {
            *(argv[i][4] == 'e' && argv[i][3] == 'c' ? &o->scene : &o->seam) = value;
            known = ++i < argc;
        }
        for (size_t k = 0; !known && k < sizeof(numbers) / sizeof(*numbers); k++) {
            if (strcmp(argv[i], numbers[k].name) == 0 && *value >= '0' && *value <= '9') {
                *numbers[k].to = strtoull(value, NULL, 10);
                o->is_single = o->is_single || numbers[k].to == &o->at;
                known = ++i < argc;
            }
        }
        if (!known)
            return false;
    }
    return true;
}

int main(int argc, char **argv)
{
    options o = {.seed = 1, .n_seeds = 1};
    bool good = true, found = false;
    now = mmap(NULL, sizeof(*now), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (!read_options(argc, argv, &o) || now == MAP_FAILED) {
        fprintf(stderr, "kvp_faults: wrong usage (see test/faults/main.c)\n");
        return 2;
    }
    if (o.self_test)
        return self_test() ? 0 : 1;
    for (uint32_t i = 0; i < n_scenes && good; i++) {
        if (o.scene == NULL || strcmp(o.scene, scenes[i].name) == 0) {
            good = o.is_single ? run_one(&o, &scenes[i]) : sweep(&o, &scenes[i]);
            found = true;
        }
    }
    return good && found ? 0 : 1;
}
