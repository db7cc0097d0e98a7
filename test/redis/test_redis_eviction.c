/* What is left of prompts when a server evicts: usable bytes, those of records whose whole prefix
 * is there, of the bytes that survive. A single server and a cluster of three with volatile-ttl,
 * and in the table the same with allkeys-lru, are given the same requests.
 *
 *     test_redis_eviction                       one seed of volatile-ttl, held to the bounds
 *     test_redis_eviction --seeds 20            a table; status 1 if a bound is missed
 *         --minutes N --zipf S --hits N --samples N --pace MS
 *
 * All prompts begin with one shared record; their data is DATA times maxmemory. A request is a new
 * prompt, or one that came before, by Zipf's law. It asks what is there, gets the prefix, and puts
 * the rest, as an engine does that computes what it misses.
 *
 * A run takes seconds and stands for `minutes`: the store's clock is moved on from time to time,
 * and the expiries on the servers are moved back by as much. The clock of allkeys-lru cannot be
 * moved. It ticks once a second; --pace lets each request wait, so that a run has more ticks. */
#define _GNU_SOURCE
#include "redis_records.h"

#include <math.h>
#include <time.h>

#include "real_cluster.h"
#include "store/redis/ages.h"
#include "store/redis/redis_map.h"

enum {
    DATA = 4,
    KV_BYTES = 4096,
    RECORD_BYTES = 4096 + BLOCKS * KV_BYTES,
    MEMORY = 18 << 20, /* of all servers together */
    DEPTH_LEAST = 4,
    DEPTH_MOST = 28,
    PROMPTS_MAX = DATA * MEMORY / RECORD_BYTES / DEPTH_LEAST,
    RECORDS_MAX = DATA * MEMORY / RECORD_BYTES + DEPTH_MOST,
    JUMP_MS = 5000,
    OURS = 2, /* the first of the kinds */
    KINDS = 4
};

/* What must be reached: each run, and on average. */
static const double least_share = 0.65;
static const double mean_share = 0.80;
/* Of one seed, the two kinds together: 0.80 to 0.87 were seen, 0.73 where depth does not count. */
static const double one_seed_share = 0.78;
static const double most_uneven = 1.3;

struct prompt {
    unsigned first; /* of its own records, after the shared one */
    unsigned n;
    int is_seen;
};

static struct prompt prompts[PROMPTS_MAX];
static unsigned n_prompts;
static kvp_digest keys[RECORDS_MAX]; /* the first is the shared one */
static unsigned n_records;
static unsigned of_rank[PROMPTS_MAX]; /* most popular first */
static double sum_of_rank[PROMPTS_MAX];

static struct options {
    unsigned n_seeds;
    unsigned minutes;
    unsigned hits; /* requests of prompts that came before, for each new one */
    unsigned pace_ms;
    double zipf;
    const char *samples;
} options = {.n_seeds = 1, .minutes = 30, .hits = 2, .zipf = 1.0, .samples = "5"};

/* What one store and its servers are, and what came of them. */
struct kind {
    const char *name;
    const char *policy;
    unsigned n_servers;
    struct real_server single;
    struct real_cluster cluster;
    kvp_store *store;
    uint64_t asked;
    uint64_t got;
    double share; /* usable of surviving */
    double kept;  /* surviving, of maxmemory */
    double hits;  /* records got, of those asked for */
    double uneven;
    double sums[4];
    double least;
    double most;
    double most_uneven;
};

static unsigned n_kinds = OURS;
static struct kind kinds[KINDS] = {
    {.name = "one server, volatile-ttl", .policy = "volatile-ttl", .n_servers = 1},
    {.name = "three servers, volatile-ttl", .policy = "volatile-ttl", .n_servers = 3},
    {.name = "one server, allkeys-lru", .policy = "allkeys-lru", .n_servers = 1},
    {.name = "three servers, allkeys-lru", .policy = "allkeys-lru", .n_servers = 3},
};

/* ------------------------------------------------------------------------------------ the scene */

static uint64_t random_state;

static uint64_t next_random(void)
{
    uint64_t z = random_state += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return z ^ z >> 31;
}

static unsigned below(unsigned n)
{
    return (unsigned)(next_random() % n);
}

static double fraction(void)
{
    return (double)(next_random() >> 11) / 9007199254740992.0;
}

static uint64_t skipped_ms; /* how far the clock was moved on */

static uint64_t moved_now(void *context)
{
    struct timespec time;
    (void)context;
    clock_gettime(CLOCK_REALTIME, &time);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec + skipped_ms * 1000000;
}

static kvp_digest digest_of(unsigned record)
{
    kvp_digest digest = input_digest(3);
    memcpy(digest.bytes, &record, sizeof record);
    return digest;
}

/* The record with number n of a prompt: 0 is the shared one. */
static unsigned record_of(const struct prompt *prompt, unsigned n)
{
    return n == 0 ? 0 : prompt->first + n - 1;
}

static void make_scene(unsigned seed)
{
    random_state = seed;
    n_prompts = 0;
    for (n_records = 1; (uint64_t)n_records * RECORD_BYTES < (uint64_t)DATA * MEMORY;) {
        const unsigned n = DEPTH_LEAST + below(DEPTH_MOST - DEPTH_LEAST + 1);
        prompts[n_prompts] = (struct prompt){.first = n_records, .n = n};
        n_records += n - 1;
        of_rank[n_prompts] = n_prompts;
        n_prompts++;
    }
    const kvp_slice slice = {.n_layers = 1, .n_heads = 1};
    kvp_digester *digester = NULL;
    assert_int_equal(kvp_digester_create(&digester), KVP_OK);
    for (unsigned i = 0; i < n_records; i++) {
        const kvp_digest digest = digest_of(i);
        kvp_record_key(digester, &digest, 0, &slice, &keys[i]);
    }
    kvp_digester_destroy(digester);
    double sum = 0;
    for (unsigned i = 0; i < n_prompts; i++) {
        const unsigned other = i + below(n_prompts - i);
        const unsigned chosen = of_rank[other];
        of_rank[other] = of_rank[i];
        of_rank[i] = chosen;
        sum_of_rank[i] = sum += pow(i + 1, -options.zipf);
    }
}

/* One that came before. */
static struct prompt *popular(void)
{
    for (;;) {
        const double at = fraction() * sum_of_rank[n_prompts - 1];
        unsigned rank = 0;
        while (rank + 1 < n_prompts && sum_of_rank[rank] <= at)
            rank++;
        if (prompts[of_rank[rank]].is_seen)
            return &prompts[of_rank[rank]];
    }
}

/* ---------------------------------------------------------------------------------- the servers */

static struct real_server *server_of_kind(struct kind *kind, unsigned i)
{
    return kind->n_servers == 1 ? &kind->single : &kind->cluster.servers[i];
}

static void start_kind(struct kind *kind)
{
    char memory[24], url[140];
    const char *const server[] = {
        "--maxmemory",   memory, "--maxmemory-policy", kind->policy, "--maxmemory-samples",
        options.samples, NULL};
    snprintf(memory, sizeof memory, "%d", MEMORY / (int)kind->n_servers);
    if (kind->n_servers == 1)
        start_server(&kind->single, server);
    else
        start_cluster(&kind->cluster, CLUSTER_PRIMARIES, server);
    /* The clock that is moved on is that of deadlines, too. */
    snprintf(url, sizeof url, "%s?connections=2&timeout=1h", server_of_kind(kind, 0)->url);
    kvp_store_config config = config_of(url);
    config.block_bytes[0] = KV_BYTES;
    config.now = moved_now;
    kind->store = open_store(&config);
}

static void stop_kind(struct kind *kind)
{
    kvp_store_close(kind->store);
    if (kind->n_servers == 1)
        stop_server(&kind->single);
    else
        stop_cluster(&kind->cluster);
}

/* Time passes. */
static void move_on(unsigned ms)
{
    static const char script[] =
        "for _, key in ipairs(redis.call('KEYS', '*')) do "
        "redis.call('PEXPIRE', key, redis.call('PTTL', key) - ARGV[1]) end return 1";
    skipped_ms += ms;
    for (unsigned k = 0; k < n_kinds; k++)
        for (unsigned i = 0; i < kinds[k].n_servers; i++)
            if (strcmp(kinds[k].policy, "volatile-ttl") == 0)
                assert_int_equal(ask(server_of_kind(&kinds[k], i), "EVAL %s 0 %u", script, ms), 1);
}

/* ----------------------------------------------------------------------------------- a request */

static uint32_t move_record(kvp_store *store, uint32_t op, const struct prompt *prompt, unsigned n)
{
    static uint8_t kv[BLOCKS][KV_BYTES];
    void *blocks[BLOCKS] = {kv[0], kv[1]};
    int32_t tokens[BLOCKS * TOKENS];
    const unsigned record = record_of(prompt, n);
    kvp_identity identity = input_identity(tokens, BLOCKS, TOKENS, n, record);
    identity.digest = digest_of(record);
    if (n > 0)
        identity.parent = keys[record_of(prompt, n - 1)];
    assert_int_equal(op == KVP_STORE_PUT ? kvp_store_put(store, &identity, blocks, 1)
                                         : kvp_store_get(store, &identity, blocks, 1),
                     KVP_OK);
    return input_result(store);
}

static void request(struct kind *kind, const struct prompt *prompt)
{
    kvp_digest asked[DEPTH_MOST];
    uint64_t bits = 0;
    unsigned n = 0;
    for (unsigned i = 0; i < prompt->n; i++)
        asked[i] = keys[record_of(prompt, i)];
    assert_int_equal(kvp_store_have(kind->store, asked, prompt->n, &bits, 1), KVP_OK);
    assert_int_equal(input_result(kind->store), KVP_STORE_OK);
    while (n < prompt->n && bits >> n & 1 &&
           move_record(kind->store, KVP_STORE_GET, prompt, n) == KVP_STORE_OK)
        n++;
    kind->asked += prompt->n;
    kind->got += n;
    for (; n < prompt->n; n++) {
        const uint32_t result = move_record(kind->store, KVP_STORE_PUT, prompt, n);
        assert_true(result == KVP_STORE_OK || result == KVP_STORE_KNOWN);
    }
}

static void request_of_all(struct prompt *prompt)
{
    prompt->is_seen = 1;
    for (unsigned k = 0; k < n_kinds; k++)
        request(&kinds[k], prompt);
    poll(NULL, 0, (int)options.pace_ms);
}

static void play(void)
{
    const unsigned n_requests = n_prompts * (1 + options.hits);
    const uint64_t total_ms = (uint64_t)options.minutes * 60000;
    uint64_t gone_ms = 0;
    unsigned n_new = 0;
    for (unsigned i = 0; i < n_requests; i++) {
        const unsigned left = n_requests - i;
        const int is_new = n_new == 0 || below(left) < n_prompts - n_new;
        request_of_all(is_new ? &prompts[n_new] : popular());
        n_new += (unsigned)is_new;
        for (; gone_ms + JUMP_MS <= total_ms * (i + 1) / n_requests; gone_ms += JUMP_MS)
            move_on(JUMP_MS);
    }
    assert_int_equal(n_new, n_prompts);
}

/* --------------------------------------------------------------------------------- what is left */

static unsigned server_of_record(unsigned record)
{
    const struct kvpi_ages ages = {.tags = 512};
    return kvpi_map_slot(kvpi_ages_tag(&ages, &keys[record])) * 3 / 16384;
}

static unsigned greatest(const unsigned *numbers, unsigned n)
{
    unsigned most = 0;
    for (unsigned i = 0; i < n; i++)
        most = numbers[i] > most ? numbers[i] : most;
    return most;
}

static void look_for_all(const struct kind *kind, uint64_t *bits)
{
    assert_true(n_records <= KVP_STORE_KEYS_MAX);
    assert_int_equal(kvp_store_have(kind->store, keys, n_records, bits, 1), KVP_OK);
    assert_int_equal(input_result(kind->store), KVP_STORE_OK);
}

static void measure(struct kind *kind)
{
    static uint64_t bits[KVP_STORE_KEYS_MAX / 64];
    unsigned alive[3] = {0};
    unsigned placed[3] = {0};
    look_for_all(kind, bits);
    unsigned n_alive = 0;
    for (unsigned i = 0; i < n_records; i++) {
        const unsigned is_alive = bits[i / 64] >> (i % 64) & 1;
        n_alive += is_alive;
        alive[server_of_record(i)] += is_alive;
        placed[server_of_record(i)]++;
    }
    unsigned n_usable = bits[0] & 1;
    for (unsigned p = 0; p < n_prompts; p++)
        for (unsigned n = 0; n < prompts[p].n; n++) {
            const unsigned record = record_of(&prompts[p], n);
            if (!(bits[record / 64] >> (record % 64) & 1))
                break;
            n_usable += n > 0;
        }
    assert_true(n_alive > 0);
    kind->share = (double)n_usable / n_alive;
    kind->kept = (double)n_alive * RECORD_BYTES / MEMORY;
    kind->hits = (double)kind->got / (double)kind->asked;
    kind->uneven = kind->n_servers == 1 ? 1 : greatest(alive, 3) * 3.0 / n_alive;
    if (kind->n_servers > 1 && greatest(placed, 3) * 3.0 / n_records > kind->uneven)
        kind->uneven = greatest(placed, 3) * 3.0 / n_records;
}

/* Nothing is put to the test unless data is evicted: less than half of all is there. */
static int is_within_bounds(void)
{
    int good = 1;
    for (unsigned k = 0; k < OURS; k++) {
        const struct kind *ours = &kinds[k];
        good &= ours->share >= least_share && ours->uneven <= most_uneven;
        good &= ours->kept > 0.3 && ours->kept < DATA / 2.0;
    }
    return good;
}

static void run_seed(unsigned seed)
{
    skipped_ms = 0;
    make_scene(seed);
    for (unsigned k = 0; k < n_kinds; k++) {
        kinds[k].asked = kinds[k].got = 0;
        start_kind(&kinds[k]);
    }
    play();
    for (unsigned k = 0; k < n_kinds; k++) {
        measure(&kinds[k]);
        stop_kind(&kinds[k]);
    }
}

static void add_up(struct kind *kind, unsigned n_before)
{
    const double values[] = {kind->share, kind->kept, kind->hits, kind->uneven};
    for (unsigned i = 0; i < 4; i++)
        kind->sums[i] += values[i];
    kind->least = n_before == 0 || kind->share < kind->least ? kind->share : kind->least;
    kind->most = kind->share > kind->most ? kind->share : kind->most;
    kind->most_uneven = kind->uneven > kind->most_uneven ? kind->uneven : kind->most_uneven;
}

/* 0: all bounds are met. */
static int run_seeds(void)
{
    int is_bad = 0;
    double least_times = INFINITY;
    for (unsigned seed = 1; seed <= options.n_seeds; seed++) {
        run_seed(seed);
        for (unsigned k = 0; k < n_kinds; k++)
            add_up(&kinds[k], seed - 1);
        for (unsigned k = 0; k < OURS; k++) {
            const double times = kinds[k].share / kinds[k + OURS].share;
            least_times = times < least_times ? times : least_times;
        }
        is_bad |= !is_within_bounds();
        printf("%2u  %.3f %.3f  lru %.3f %.3f%s\n", seed, kinds[0].share, kinds[1].share,
               kinds[2].share, kinds[3].share, is_within_bounds() ? "" : "  *");
        fflush(stdout);
    }
    printf("%-28s %23s  alive/max  hits  fullest\n", "", "usable: mean, min, max");
    for (unsigned k = 0; k < n_kinds; k++) {
        const struct kind *kind = &kinds[k];
        is_bad |= k < OURS && kind->sums[0] / options.n_seeds < mean_share;
        printf("%-28s   %.3f   %.3f   %.3f     %.3f  %.3f    %.3f\n", kind->name,
               kind->sums[0] / options.n_seeds, kind->least, kind->most,
               kind->sums[1] / options.n_seeds, kind->sums[2] / options.n_seeds, kind->most_uneven);
    }
    printf("least ratio of a run to allkeys-lru: %.2f\n", least_times);
    return is_bad;
}

TEST(prefixes_outlive_eviction)
{
    run_seed(1);
    for (unsigned k = 0; k < n_kinds; k++)
        printf("%s: %.3f usable, %.3f of maxmemory, fullest server %.3f\n", kinds[k].name,
               kinds[k].share, kinds[k].kept, kinds[k].uneven);
    assert_true(is_within_bounds());
    assert_true((kinds[0].share + kinds[1].share) / OURS >= one_seed_share);
}

static int read_options(int argc, char **argv)
{
    for (int i = 1; i + 1 < argc; i += 2) {
        const char *value = argv[i + 1];
        const unsigned number = (unsigned)strtoul(value, NULL, 10);
        if (strcmp(argv[i], "--seeds") == 0)
            options.n_seeds = number;
        else if (strcmp(argv[i], "--minutes") == 0)
            options.minutes = number;
        else if (strcmp(argv[i], "--hits") == 0)
            options.hits = number;
        else if (strcmp(argv[i], "--pace") == 0)
            options.pace_ms = number;
        else if (strcmp(argv[i], "--zipf") == 0)
            options.zipf = strtod(value, NULL);
        else if (strcmp(argv[i], "--samples") == 0)
            options.samples = value;
        else
            return 0;
    }
    return argc % 2 == 1 && options.n_seeds > 0;
}

int main(int argc, char **argv)
{
    if (!read_options(argc, argv)) {
        fprintf(stderr,
                "usage: test_redis_eviction [--seeds N] [--minutes N] [--hits N] [--zipf S] "
                "[--samples N] [--pace MS]\n");
        return 2;
    }
    if (!redis_program()) {
        puts("skipped: there is no redis-server (Debian: redis-tools)");
        return 77;
    }
    if (argc > 1) {
        n_kinds = KINDS;
        return run_seeds();
    }
    return run_all_tests(NULL, NULL);
}
