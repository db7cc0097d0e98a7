/* oplog: an operation log goes from one machine to another.
 *
 *     oplog record FILE     makes calls on a cache and records them; the same on every machine
 *     oplog replay FILE     runs them again and compares every result
 *
 * scripts/ports.py records on one processor and replays on the other, and compares the two logs.
 */
#include <kvpager/all.h>
#include <kvpager/oplog.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_CALLS = 20000, MAX_OPEN = 12 };

static uint64_t state = 1;

static uint32_t below(uint32_t n)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33) % n;
}

static int write_log(void *file, const void *bytes, size_t n_bytes)
{
    return fwrite(bytes, 1, n_bytes, file) != n_bytes;
}

/* Prompts begin with one of three prefixes, so that many are hits. */
static void open_one(kvp_cache *cache, kvp_ns ns, kvp_seq *seqs, uint32_t *n_open)
{
    int32_t tokens[60];
    const uint32_t n = 1 + below(60);
    const uint32_t prefix = below(3);
    for (uint32_t i = 0; i < n; i++)
        tokens[i] = (int32_t)(i < 24 ? i + 100 * prefix : below(4));
    kvp_prompt prompt = {.struct_size = sizeof prompt, .tokens = tokens, .n_tokens = n};
    if (kvp_seq_open(cache, ns, &prompt, &seqs[*n_open], NULL) == KVP_OK) {
        (void)kvp_seq_commit(cache, seqs[*n_open], n);
        ++*n_open;
    }
}

/* Refusals are recorded like everything else. */
static void call_one(kvp_cache *cache, kvp_seq *seqs, uint32_t *n_open)
{
    kvp_seq *seq = &seqs[below(*n_open)];
    int32_t token = (int32_t)below(4);
    kvp_copy copies[256];
    uint32_t n;
    switch (below(8)) {
    case 0:
        if (*n_open < MAX_OPEN && kvp_seq_fork(cache, *seq, KVP_END, 0, &seqs[*n_open]) == KVP_OK)
            ++*n_open;
        break;
    case 1: (void)kvp_seq_swap_out(cache, seq, 1, NULL); break;
    case 2: (void)kvp_seq_swap_in(cache, seq, 1, 1, NULL); break;
    case 3: (void)kvp_seq_truncate(cache, *seq, below(40), NULL); break;
    case 4: (void)kvp_plan_take(cache, copies, 256, &n); break;
    case 5:
        (void)kvp_seq_close(cache, *seq, NULL);
        *seq = seqs[--*n_open];
        break;
    default:
        if (kvp_seq_extend(cache, *seq, &token, 1, 0) == KVP_OK)
            (void)kvp_seq_commit(cache, *seq, 1 + below(40));
    }
}

static int record(FILE *file)
{
    kvp_config config;
    kvp_cache *cache;
    kvp_ns ns;
    kvp_seq seqs[MAX_OPEN];
    uint32_t n_open = 0;
    const kvp_sink sink = {file, write_log};
    kvp_config_init(&config);
    config.block_tokens = 8;
    config.unit_tokens = 4;
    config.n_blocks = 40;
    config.host_blocks = 60;
    config.max_seqs = MAX_OPEN;
    config.max_seq_tokens = 200;
    if (kvp_cache_create(&config, NULL, 0, &cache) || kvp_cache_record_start(cache, &sink) ||
        kvp_ns_open(cache, "model", 5, &ns))
        return 1;
    for (uint32_t i = 0; i < N_CALLS; i++)
        if (n_open == 0 || (n_open < MAX_OPEN && below(4) == 0))
            open_one(cache, ns, seqs, &n_open);
        else
            call_one(cache, seqs, &n_open);
    kvp_stats stats;
    (void)kvp_cache_stats_get(cache, &stats);
    printf("%llu opens, %llu evicted, %llu swapped out\n", (unsigned long long)stats.opens,
           (unsigned long long)stats.evicted_blocks, (unsigned long long)stats.swap_outs);
    const kvp_status status = kvp_cache_record_stop(cache);
    kvp_cache_destroy(cache);
    return status != KVP_OK;
}

static int replay(FILE *file)
{
    static unsigned char bytes[8 << 20];
    const size_t n_bytes = fread(bytes, 1, sizeof bytes, file);
    uint64_t index = 0;
    kvp_oplog *log;
    if (kvp_oplog_open(bytes, n_bytes, &log))
        return 1;
    const kvp_status status = kvp_oplog_replay(log, 2, &index);
    if (status != KVP_OK)
        fprintf(stderr, "%s at call %llu\n", kvp_status_name(status), (unsigned long long)index);
    kvp_oplog_close(log);
    return status != KVP_OK;
}

int main(int argc, char **argv)
{
    const int writes = argc == 3 && strcmp(argv[1], "record") == 0;
    FILE *file = argc == 3 ? fopen(argv[2], writes ? "wb" : "rb") : NULL;
    if (!file) {
        fprintf(stderr, "usage: oplog record|replay FILE\n");
        return 2;
    }
    const int failed = writes ? record(file) : replay(file);
    return (fclose(file) != 0) | failed;
}
