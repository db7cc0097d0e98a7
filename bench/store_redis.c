/* Records into and out of a redis-server on the loopback interface, beside redis-benchmark with
 * values of the same size and as many connections on the same server: GB in a second, headers
 * included, verification on. The server is started by the group and has no files.
 *
 *   store_redis_set_*    records that are not there
 *   store_redis_get_*    all records, in order; the yardstick gets random ones of as many */
#define _POSIX_C_SOURCE 200809L /* popen */

#include "bench.h"

#ifdef KVP_BENCH_REDIS

#include <arpa/inet.h>
#include <kvpager/store.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "store/redis/redis.h"

enum {
    BLOCK_BYTES = 65536,
    HEADER_BYTES = 4096,
    CONNECTIONS = 8,
    DEPTH = 2 * CONNECTIONS,
    BLOCKS_MAX = 32,
    SAMPLES = 7
};

#define SAMPLE_BYTES (UINT64_C(256) << 20)
#define QUICK_BYTES  (UINT64_C(16) << 20)

typedef struct redis_state {
    pid_t server;
    int port;
    uint32_t record_blocks;
    uint32_t n_records;
    uint64_t record_bytes;
    uint64_t generation;
    kvp_store *store;
    kvp_identity *identities; /* [n_records] */
    uint8_t *blocks;          /* [DEPTH][record_blocks][BLOCK_BYTES] */
    int32_t tokens[BLOCKS_MAX];
} redis_state;

/* ----------------------------------------------------------------------------------- the server */

static int free_port(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof address;
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    REQUIRE(bind(fd, (struct sockaddr *)&address, n) == 0);
    REQUIRE(getsockname(fd, (struct sockaddr *)&address, &n) == 0);
    close(fd);
    return ntohs(address.sin_port);
}

/* The output of a command of redis-tools for this server. 0: it failed. */
static int call(const redis_state *s, const char *program, const char *words, char *out,
                size_t n_bytes)
{
    char command[1024];
    snprintf(command, sizeof command, "%s -p %d %s 2>/dev/null", program, s->port, words);
    FILE *pipe = popen(command, "r");
    REQUIRE(pipe != NULL);
    out[fread(out, 1, n_bytes - 1, pipe)] = 0;
    return pclose(pipe) == 0;
}

static void start_server(redis_state *s)
{
    char port[16];
    char text[64];
    s->port = free_port();
    snprintf(port, sizeof port, "%d", s->port);
    s->server = fork();
    if (s->server == 0) {
        /* Debian's redis-tools has the server under the second name. */
        execlp("redis-server", "redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "",
               "--logfile", "/dev/null", (char *)NULL);
        execlp("redis-check-rdb", "redis-server", "--port", port, "--bind", "127.0.0.1", "--save",
               "", "--logfile", "/dev/null", (char *)NULL);
        _exit(127);
    }
    for (int tries = 0; tries < 500; tries++) {
        if (call(s, "redis-cli", "ping", text, sizeof text) && strncmp(text, "PONG", 4) == 0)
            return;
        if (waitpid(s->server, NULL, WNOHANG) != 0)
            break;
        poll(NULL, 0, 10);
    }
    s->server = 0;
}

/* -------------------------------------------------------------------------------------- records */

static void name_records(redis_state *s)
{
    s->generation++;
    for (uint32_t r = 0; r < s->n_records; r++) {
        kvp_identity *identity = &s->identities[r];
        *identity = (kvp_identity){.kind = KVP_IDENTITY_TOKENS,
                                   .slice = {.n_layers = 1, .n_heads = 1},
                                   .block_tokens = 1,
                                   .n_blocks = s->record_blocks,
                                   .tokens = s->tokens};
        memset(identity->fingerprint.bytes, 7, sizeof identity->fingerprint.bytes);
        memcpy(identity->digest.bytes, &r, sizeof r);
        memcpy(identity->digest.bytes + 8, &s->generation, sizeof s->generation);
    }
}

static void begin(const redis_state *s, bool write, uint32_t place, uint32_t record)
{
    void *blocks[BLOCKS_MAX];
    for (uint32_t b = 0; b < s->record_blocks; b++) {
        uint8_t *block = s->blocks + ((size_t)place * s->record_blocks + b) * BLOCK_BYTES;
        blocks[b] = block;
        if (write)
            memcpy(block, &record, sizeof record);
    }
    const uint64_t tag = (uint64_t)record * DEPTH + place;
    REQUIRE_OK(write ? kvp_store_put(s->store, &s->identities[record], blocks, tag)
                     : kvp_store_get(s->store, &s->identities[record], blocks, tag));
}

/* All records, DEPTH at a time. Gives GB in a second. */
static double move_all(const redis_state *s, bool write)
{
    kvp_store_done done[DEPTH];
    uint32_t n_begun = 0;
    const uint64_t start = now_ns();
    for (; n_begun < DEPTH && n_begun < s->n_records; n_begun++)
        begin(s, write, n_begun, n_begun);
    for (uint32_t n_ended = 0; n_ended < s->n_records;) {
        uint32_t n;
        (void)kvp_store_wait(s->store, UINT64_C(10000000000));
        REQUIRE_OK(kvp_store_poll(s->store, done, DEPTH, &n));
        for (uint32_t i = 0; i < n; i++, n_ended++) {
            const uint32_t place = (uint32_t)(done[i].tag % DEPTH);
            const uint32_t record = (uint32_t)(done[i].tag / DEPTH);
            REQUIRE(done[i].result == KVP_STORE_OK);
            REQUIRE(memcmp(s->blocks + (size_t)place * s->record_blocks * BLOCK_BYTES, &record,
                           sizeof record) == 0);
            if (n_begun < s->n_records) {
                begin(s, write, place, n_begun);
                n_begun++;
            }
        }
    }
    const uint64_t ns = now_ns() - start;
    return (double)(s->n_records * s->record_bytes) / (double)ns;
}

static void empty(const redis_state *s)
{
    char text[64];
    REQUIRE(call(s, "redis-cli", "flushall sync", text, sizeof text));
}

/* ------------------------------------------------------------------------------------ the group */

static void open_store(redis_state *s)
{
    char url[100];
    char why[300];
    kvp_store_config config;
    kvp_store_config_init(&config);
    snprintf(url, sizeof url, "redis://127.0.0.1:%d?connections=%d", s->port, CONNECTIONS);
    config.url = url;
    memset(config.fingerprint.bytes, 7, sizeof config.fingerprint.bytes);
    config.block_tokens = 1;
    config.block_bytes[0] = BLOCK_BYTES;
    config.record_blocks = s->record_blocks;
    config.key_bytes = 0;
    config.max_ops = DEPTH;
    if (kvpi_store_open(&config, &kvpi_redis_backend, &s->store, why, sizeof why) != KVP_OK) {
        fprintf(stderr, "kvp_bench: %s\n", why);
        exit(1);
    }
}

static void tear_down(void *state)
{
    redis_state *s = state;
    kvp_store_close(s->store);
    kill(s->server, SIGKILL);
    waitpid(s->server, NULL, 0);
    free(s->identities);
    free(s->blocks);
    free(s);
}

static void *set_up(const bench_options *options, uint32_t record_blocks)
{
    redis_state *s = allocate(sizeof *s);
    start_server(s);
    if (s->server == 0) {
        fprintf(stderr, "kvp_bench: there is no redis-server, or no redis-cli\n");
        free(s);
        return NULL;
    }
    s->record_blocks = record_blocks;
    s->record_bytes = HEADER_BYTES + (uint64_t)record_blocks * BLOCK_BYTES;
    s->n_records = (uint32_t)((options->quick ? QUICK_BYTES : SAMPLE_BYTES) / s->record_bytes);
    s->identities = allocate(s->n_records * sizeof *s->identities);
    s->blocks = aligned_alloc(4096, (size_t)DEPTH * record_blocks * BLOCK_BYTES);
    REQUIRE(s->blocks != NULL);
    memset(s->blocks, 0x5A, (size_t)DEPTH * record_blocks * BLOCK_BYTES);
    open_store(s);
    return s;
}

static void *set_up_512k(const bench_options *options)
{
    return set_up(options, 8);
}

static void *set_up_2m(const bench_options *options)
{
    return set_up(options, 32);
}

/* ----------------------------------------------------------------------------------------- ours */

static double set_all(void *state)
{
    redis_state *s = state;
    empty(s);
    name_records(s);
    return move_all(s, true);
}

static double get_all(void *state)
{
    redis_state *s = state;
    (void)set_all(state); /* the yardstick has left its own */
    return move_all(s, false);
}

/* ------------------------------------------------------------------------------ redis-benchmark */

/* Lines of comma-separated text, the second field of the last one is requests in a second. */
static double run_benchmark(const redis_state *s, const char *test)
{
    char words[200];
    char text[2000];
    snprintf(words, sizeof words, "-c %d -n %u -r %u -d %llu -t %s --csv", CONNECTIONS,
             (unsigned)s->n_records,
             strcmp(test, "set") == 0 ? 1000000000u : (unsigned)s->n_records,
             (unsigned long long)s->record_bytes, test);
    if (!call(s, "redis-benchmark", words, text, sizeof text))
        return -1;
    const char *field = strrchr(text, '\n')
                            ? strstr(text, strcmp(test, "set") == 0 ? "\"SET\",\"" : "\"GET\",\"")
                            : NULL;
    return field ? strtod(field + 7, NULL) * (double)s->record_bytes / 1e9 : -1;
}

static double benchmark_set(void *state)
{
    const redis_state *s = state;
    empty(s);
    return run_benchmark(s, "set");
}

/* The keys that redis-benchmark asks for. */
static double benchmark_get(void *state)
{
    const redis_state *s = state;
    char words[300];
    char text[64];
    empty(s);
    snprintf(words, sizeof words,
             "eval \"for i = 0, %u do redis.call('set', string.format('key:%%012d', i), "
             "string.rep('x', %llu)) end\" 0",
             (unsigned)s->n_records - 1, (unsigned long long)s->record_bytes);
    REQUIRE(call(s, "redis-cli", words, text, sizeof text));
    return run_benchmark(s, "get");
}

#define ROW(name, ours, yardstick, note)                                                           \
    {                                                                                              \
        name, "GB/s", 0.8, SAMPLES, ours, yardstick, note                                          \
    }
#define ROWS(size)                                                                                 \
    {                                                                                              \
        ROW("store_redis_set_" size, set_all, benchmark_set,                                       \
            "8 connections; yardstick: redis-benchmark"),                                          \
            ROW("store_redis_get_" size, get_all, benchmark_get, "8 connections"),                 \
    }

static const measurement rows_512k[] = ROWS("512k");
static const measurement rows_2m[] = ROWS("2m");

const group store_redis_512k_group = {rows_512k, 2, set_up_512k, tear_down};
const group store_redis_2m_group = {rows_2m, 2, set_up_2m, tear_down};

#else

const group store_redis_512k_group = {NULL, 0, NULL, NULL}; /* libkvpager_redis is not built here */
const group store_redis_2m_group = {NULL, 0, NULL, NULL};

#endif
