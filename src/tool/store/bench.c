/* kvpager store bench: how fast a place writes and reads records of a model's size, and from which
 * length of prompt loading them is faster than computing them.
 *
 *   load(n)     = a get by itself + (bytes of n tokens - a record) / rate of many gets
 *   compute(n)  = n / --compute-rate, or the time of the step model (step_model.c), in chunks
 *
 * Everything is written into a directory of its own below PATH, which goes at the end: what engines
 * keep there is not touched. A round writes all records and reads them; the first one writes into
 * fresh space, and its writes are told apart.
 */
#define _GNU_SOURCE /* O_DIRECT, statx, nftw */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/direct.h"
#include "tool/args.h"
#include "tool/models/models_args.h"
#include "tool/models/step_model.h"
#include "tool/store/command.h"
#include "tool/progress.h"
#include "tool/text.h"
#include "tool/tool.h"
#include "tool/input/escape.h"

#define COMMAND        "store bench"
#define DEFAULT_DEVICE "h100-80gb"
#define CHUNK_TOKENS   8192u
#define MAX_TOKENS     131072u
#define MAX_ROUNDS     64
#define DEPTH          16u
#define SINGLES        16u

/* As replay's defaults (tool/replay/replay_args.c): what of an accelerator's peaks is reached. */
static const kvpi_step_shares shares = {500, 800, UINT64_C(50000000000)};
#define STEP_NS 1000000

typedef struct bench {
    kvpi_model_args model_args;
    kvpi_model model;
    kvpi_size size;
    kvpi_step_model step;
    const char *place;
    uint64_t compute_rate; /* 0: the step model's */
    uint64_t bytes;
    uint64_t rounds;
    bool json;
    char directory[4096]; /* that is made below the place; "": none */
    bool is_direct;
    bool is_server;
    /* The store. */
    kvp_store *store;
    kvp_digest fingerprint;
    uint32_t record_blocks;
    uint32_t n_records; /* of a round */
    uint64_t block_bytes;
    int32_t *tokens; /* of one record */
    uint8_t *kv;     /* [DEPTH][record_blocks][block_bytes rounded up to pages] */
    /* Measured. */
    uint64_t record_memory;     /* bytes of servers that a record takes; 0: unknown */
    double fresh;               /* bytes a second of the first round's puts */
    double writes[MAX_ROUNDS];  /* [rounds - 1] */
    double reads[MAX_ROUNDS];   /* [rounds] */
    double singles[MAX_ROUNDS]; /* [rounds] ns of a get by itself: median of the round */
} bench;

/* -------------------------------------------------------------------------------------- options */

#define AT(member) .at = offsetof(bench, member)

static const kvpi_args_option options[] = {
    {"--model", "NAME", "a model of 'kvpager size --list'", kvpi_args_text,
     AT(model_args.model_name), .title = "Options"},
    KVPI_MODEL_CONFIG(bench, model_args, "or its Hugging Face config.json"),
    KVPI_MODEL_DEVICE(bench, model_args,
                      "the accelerator that computes, as 'kvpager size'\n"
                      "knows it (default " DEFAULT_DEVICE "): a model of its speed",
                      kvpi_model_args_size_list),
    KVPI_MODEL_TP(bench, model_args, "tensor parallel over N accelerators (default 1)"),
    KVPI_MODEL_DTYPE(bench, model_args, ""),
    KVPI_MODEL_WEIGHTS_DTYPE(bench, model_args, "of the weights"),
    {"--block-tokens", "N", "tokens of a block (default 16)", kvpi_args_number,
     AT(model_args.size.block_tokens), 1, KVP_BLOCK_TOKENS_MAX},
    {"--compute-rate", "N", "prompt tokens a second that you measured, instead of\n--device",
     kvpi_args_number, AT(compute_rate), 1, 1000000000},
    {"--bytes", "SIZE", "of KV in a round (default 256MiB)", kvpi_args_size, AT(bytes)},
    {"--rounds", "N", "2 to 64 (default 5)", kvpi_args_number, AT(rounds), 2, MAX_ROUNDS},
    {"--json", NULL, "print one JSON object", kvpi_args_yes, AT(json)},
    KVPI_ARGS_HELP,
    {NULL, NULL, "store", kvpi_args_file, AT(place)},
};

static int check_options(const kvpi_args *args, void *context)
{
    bench *b = context;
    if (b->place == NULL)
        return kvpi_args_wrong(args, "which store? a PATH, file:PATH, memory: or redis://HOST");
    if ((b->model_args.model_name == NULL) == (b->model_args.config_path == NULL))
        return kvpi_args_wrong(args, "one of --model and --model-config is needed");
    if (b->compute_rate != 0 && b->model_args.device != NULL)
        return kvpi_args_wrong(args, "--compute-rate and --device exclude each other");
    if (b->model_args.device == NULL)
        b->model_args.device = kvpi_devices_find(DEFAULT_DEVICE);
    return 0;
}

static int set_model(const kvpi_args *args, bench *b)
{
    int status = kvpi_model_args_find(args, &b->model_args, &b->model);
    if (status == TOOL_OK)
        status =
            kvpi_model_args_check(args, b->compute_rate == 0, false, &b->model, &b->model_args);
    if (status != TOOL_OK)
        return status;
    b->model_args.size.equal_blocks = true;                    /* records are of one size */
    kvpi_size_count(&b->model, &b->model_args.size, &b->size); /* no memory: it cannot fail */
    b->block_bytes = b->size.pool_block_bytes;
    if (b->block_bytes == 0 || b->block_bytes > INT32_MAX)
        return kvpi_tool_fail(COMMAND, "a block has %" PRIu64 " bytes, expected 1 to 2^31-1",
                              b->block_bytes);
    if (b->compute_rate == 0) {
        b->step.is_roofline = true;
        b->step.step_ns = STEP_NS;
        b->step.roofline = kvpi_step_roofline_of(&b->model, &b->model_args.size, &b->size,
                                                 b->model_args.device, &shares);
    }
    return TOOL_OK;
}

/* ------------------------------------------------------------------------------------ the place */

static int remove_entry(const char *path, const struct stat *stat, int kind, struct FTW *walk)
{
    (void)stat;
    (void)kind;
    (void)walk;
    return remove(path);
}

/* Reads and writes past the page cache, if the file system can: else memory is measured. */
static bool try_direct(const char *directory)
{
#ifdef O_DIRECT
    char path[4200];
    snprintf(path, sizeof path, "%s/direct", directory);
    const int file = open(path, O_RDWR | O_CREAT | O_DIRECT, 0600);
    const bool works = file >= 0 && kvpi_direct_works(file, 4096);
    if (file >= 0)
        close(file);
    unlink(path);
    return works;
#else
    (void)directory;
    return false;
#endif
}

/* A name that begins with a point is none of a store's. */
static int make_place(bench *b)
{
    const char *path = strncmp(b->place, "file:", 5) == 0 ? b->place + 5 : b->place;
    const size_t length = strcspn(path, "?");
    const int n =
        snprintf(b->directory, sizeof b->directory, "%.*s/.bench-XXXXXX", (int)length, path);
    if (length == 0 || n >= (int)sizeof b->directory || mkdtemp(b->directory) == NULL) {
        b->directory[0] = '\0';
        return kvpi_tool_fail(COMMAND, "%.*s: %s", (int)length, path, strerror(errno));
    }
    b->is_direct = try_direct(b->directory);
    return TOOL_OK;
}

/* Records that are left on a server, because this was killed, expire in an hour. */
static int write_url(const bench *b, uint64_t size, char *out, size_t n_bytes)
{
    int n;
    if (b->is_server)
        n = snprintf(out, n_bytes, "%s%s", b->place,
                     strstr(b->place, "ttl=") != NULL ? ""
                     : strchr(b->place, '?') != NULL  ? "&ttl=1h"
                                                      : "?ttl=1h");
    else if (b->directory[0] == '\0')
        n = snprintf(out, n_bytes, "memory:?size=%" PRIu64, size);
    else
        n = snprintf(out, n_bytes, "file:%s?size=%" PRIu64, b->directory, size);
    return n < (int)n_bytes ? TOOL_OK : kvpi_tool_fail(COMMAND, "the URL is too long");
}

static int open_place(bench *b)
{
    const bool in_memory = strncmp(b->place, "memory:", 7) == 0;
    b->is_server = strncmp(b->place, "redis:", 6) == 0 || strncmp(b->place, "rediss:", 7) == 0;
    if (!in_memory && !b->is_server && strstr(b->place, "://") != NULL) {
        char shown[256];
        (void)kvp_store_url_show(b->place, shown, sizeof shown);
        return kvpi_tool_fail(COMMAND, "there is no store \"%s\"", shown);
    }
    if (!in_memory && !b->is_server && make_place(b) != TOOL_OK)
        return TOOL_FAILED;
    kvp_store_config config;
    kvp_store_config_init(&config);
    /* No model's, and on a server no other measurement's. */
    const uint64_t own = kvpi_progress_now_ns() ^ (uint64_t)getpid() << 40;
    config.fingerprint.bytes[31] = 1;
    if (b->is_server)
        memcpy(config.fingerprint.bytes, &own, sizeof own);
    b->fingerprint = config.fingerprint;
    config.block_tokens = (uint32_t)b->model_args.size.block_tokens;
    config.block_bytes[0] = b->block_bytes;
    config.key_bytes = 0;
    config.max_ops = DEPTH;
    /* As kvp_store_config.record_blocks chooses. */
    b->record_blocks = 1;
    while (b->record_blocks < KVP_RECORD_BLOCKS_MAX && b->record_blocks * b->block_bytes < 524288)
        b->record_blocks *= 2;
    const uint64_t payload = b->record_blocks * b->block_bytes;
    const uint64_t n = (b->bytes + payload - 1) / payload;
    if (n > 1000000)
        return kvpi_tool_fail(COMMAND, "--bytes: more than a million records in a round");
    b->n_records = n < SINGLES ? SINGLES : (uint32_t)n;
    const uint64_t header = 4096 + (uint64_t)b->record_blocks * config.block_tokens * 4;
    const uint64_t size = (b->n_records + 8) * (payload + header + 8192) * 9 / 8;
    char url[4200], why[512];
    if (write_url(b, size, url, sizeof url) != TOOL_OK)
        return TOOL_FAILED;
    config.url = url;
    if (kvp_store_open(&config, &b->store, why, sizeof why) == KVP_OK)
        return TOOL_OK;
    return kvpi_tool_fail(COMMAND, "%s", why);
}

static int make_memory(bench *b)
{
    const size_t block = (size_t)(b->block_bytes + 4095) / 4096 * 4096;
    const size_t n_tokens = b->record_blocks * (size_t)b->model_args.size.block_tokens;
    b->tokens = calloc(n_tokens, sizeof *b->tokens);
    b->kv = aligned_alloc(4096, block * b->record_blocks * DEPTH);
    if (b->tokens == NULL || b->kv == NULL)
        return kvpi_tool_fail(COMMAND, "out of memory");
    uint64_t word = 1;
    for (size_t i = 0; i < block * b->record_blocks * DEPTH / 8; i++) {
        word = word * UINT64_C(6364136223846793005) + 1442695040888963407u;
        memcpy(b->kv + i * 8, &word, 8); /* no device may compress it */
    }
    return TOOL_OK;
}

/* ---------------------------------------------------------------------------------- measurement */

/* What one operation of a round points to. */
typedef struct request {
    kvp_identity identity;
    void *blocks[KVP_RECORD_BLOCKS_MAX];
} request;

static void set_request(const bench *b, uint64_t round, uint32_t record, uint32_t place,
                        request *out)
{
    const size_t block = (size_t)(b->block_bytes + 4095) / 4096 * 4096;
    memset(out, 0, sizeof *out);
    out->identity.kind = KVP_IDENTITY_TOKENS;
    out->identity.slice = (kvp_slice){.n_layers = 1, .n_heads = 1};
    out->identity.fingerprint = b->fingerprint;
    memcpy(out->identity.digest.bytes, &round, sizeof round);
    memcpy(out->identity.digest.bytes + 8, &record, sizeof record);
    out->identity.block_tokens = (uint32_t)b->model_args.size.block_tokens;
    out->identity.n_blocks = b->record_blocks;
    out->identity.tokens = b->tokens;
    for (uint32_t i = 0; i < b->record_blocks; i++)
        out->blocks[i] = b->kv + (place * b->record_blocks + i) * block;
}

static const char *result_text(uint32_t result)
{
    static const char *const texts[] = {"done",
                                        "the record is there already",
                                        "the record is gone",
                                        "the record is gone",
                                        "a record was damaged",
                                        "no parent",
                                        "no room: is the disk full?",
                                        "reading or writing failed",
                                        "reading or writing failed repeatedly",
                                        "closed"};
    return result < sizeof texts / sizeof *texts ? texts[result] : "?";
}

/* The store may know more: which server does not answer, and why. */
static int fail_with(const bench *b, const char *what, uint32_t result)
{
    char text[304] = "";
    (void)kvp_store_describe(b->store, text, sizeof text);
    return kvpi_tool_fail(COMMAND, "%s%s (%s)", what, result_text(result), text);
}

/* Put or get `n` records, `depth` at a time. Gives the nanoseconds. */
static int run(bench *b, bool put, uint64_t round, uint32_t n, uint32_t depth, uint64_t *out_ns)
{
    request requests[DEPTH];
    uint32_t places[DEPTH];
    uint32_t n_free = 0, next = 0, n_ended = 0;
    while (n_free < depth) {
        places[n_free] = n_free;
        n_free++;
    }
    const uint64_t begin = kvpi_progress_now_ns();
    while (n_ended < n) {
        while (n_free > 0 && next < n) {
            const uint32_t place = places[--n_free];
            request *r = &requests[place];
            set_request(b, round, next++, place, r);
            const kvp_status status = put ? kvp_store_put(b->store, &r->identity, r->blocks, place)
                                          : kvp_store_get(b->store, &r->identity, r->blocks, place);
            if (status != KVP_OK)
                return kvpi_tool_fail(COMMAND, "%s", kvp_status_text(status));
        }
        kvp_store_done done[DEPTH];
        uint32_t n_done = 0;
        kvp_store_wait(b->store, UINT64_C(1000000000));
        kvp_store_poll(b->store, done, DEPTH, &n_done);
        for (uint32_t i = 0; i < n_done; i++) {
            if (done[i].result != KVP_STORE_OK)
                return fail_with(b, put ? "put: " : "get: ", done[i].result);
            places[n_free++] = (uint32_t)done[i].tag;
        }
        n_ended += n_done;
    }
    *out_ns = kvpi_progress_now_ns() - begin;
    return TOOL_OK;
}

static int wait_for_one(bench *b, kvp_status status)
{
    kvp_store_done done = {0};
    uint32_t n = 0;
    while (status == KVP_OK && n == 0) {
        kvp_store_wait(b->store, UINT64_C(1000000000));
        kvp_store_poll(b->store, &done, 1, &n);
    }
    if (status != KVP_OK)
        return kvpi_tool_fail(COMMAND, "%s", kvp_status_text(status));
    return done.result == KVP_STORE_OK ? TOOL_OK : fail_with(b, "", done.result);
}

/* A sync, or the end of a round's records. */
static int run_one(bench *b, bool sync)
{
    const kvp_store_match all = {.written_before = UINT64_MAX};
    const kvp_status status =
        sync ? kvp_store_sync(b->store, 0) : kvp_store_evict(b->store, &all, 0);
    return wait_for_one(b, status);
}

/* The records of a round, by their keys: a server has others' beside them. */
static int drop_round(bench *b, uint64_t round)
{
    kvp_digester *digester;
    kvp_digest *keys = calloc(KVP_STORE_KEYS_MAX, sizeof *keys);
    int status = keys != NULL && kvp_digester_create(&digester) == KVP_OK ? TOOL_OK : TOOL_FAILED;
    if (status != TOOL_OK) {
        free(keys);
        return kvpi_tool_fail(COMMAND, "out of memory");
    }
    for (uint32_t first = 0; first < b->n_records && status == TOOL_OK;) {
        uint32_t n = 0;
        for (; n < KVP_STORE_KEYS_MAX && first + n < b->n_records; n++) {
            request r;
            set_request(b, round, first + n, 0, &r);
            (void)kvp_record_key(digester, &r.identity.digest, 0, &r.identity.slice, &keys[n]);
        }
        first += n;
        status = wait_for_one(b, kvp_store_drop(b->store, keys, n, 0));
    }
    kvp_digester_destroy(digester);
    free(keys);
    return status;
}

/* What servers say of themselves: records of all, and what one takes of the memory of some. */
typedef struct servers {
    uint64_t records;
    uint64_t record_memory;
} servers;

static void add_server(void *context, const kvp_store_directory *directory)
{
    servers *to = context;
    to->records += directory->records;
    if (directory->slot_bytes > 0)
        to->record_memory = directory->slot_bytes;
}

static servers look_at_servers(const bench *b)
{
    servers found = {0};
    kvp_store_scan_options scan;
    char why[512];
    kvp_store_scan_options_init(&scan);
    scan.directory = add_server;
    scan.context = &found;
    if (!b->is_server || kvp_store_scan(b->place, &scan, why, sizeof why) != KVP_OK)
        found = (servers){0};
    return found;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(const double *values, uint64_t n)
{
    double sorted[MAX_ROUNDS];
    memcpy(sorted, values, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, by_value);
    return n % 2 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
}

/* of: -1 the least, 0 the median, 1 the greatest. */
static double pick(const double *values, uint64_t n, int of)
{
    if (of == 0)
        return median(values, n);
    double value = values[0];
    for (uint64_t i = 1; i < n; i++)
        if (of < 0 ? values[i] < value : values[i] > value)
            value = values[i];
    return value;
}

static int measure_round(bench *b, uint64_t round)
{
    const double bytes = (double)b->n_records * b->record_blocks * (double)b->block_bytes;
    const servers before = round == 0 ? look_at_servers(b) : (servers){0};
    uint64_t ns = 0, begin = kvpi_progress_now_ns();
    if (run(b, true, round, b->n_records, DEPTH, &ns) != TOOL_OK || run_one(b, true) != TOOL_OK)
        return TOOL_FAILED;
    const double rate = bytes / (double)(kvpi_progress_now_ns() - begin) * 1e9;
    if (round == 0 && before.records == 0) /* else it may be another's record */
        b->record_memory = look_at_servers(b).record_memory;
    if (round == 0)
        b->fresh = rate;
    else
        b->writes[round - 1] = rate;
    if (run(b, false, round, b->n_records, DEPTH, &ns) != TOOL_OK)
        return TOOL_FAILED;
    b->reads[round] = bytes / (double)ns * 1e9;
    double singles[SINGLES];
    for (uint32_t i = 0; i < SINGLES; i++) {
        if (run(b, false, round, 1, 1, &ns) != TOOL_OK)
            return TOOL_FAILED;
        singles[i] = (double)ns;
    }
    b->singles[round] = median(singles, SINGLES);
    return b->is_server ? drop_round(b, round) : run_one(b, false);
}

/* ----------------------------------------------------------------------------------- break-even */

/* Bytes of the KV that a prompt of n tokens needs, in whole records. */
static double prompt_bytes(const bench *b, uint32_t n)
{
    const uint64_t record_tokens = b->record_blocks * b->model_args.size.block_tokens;
    uint64_t records = 0;
    for (uint32_t g = 0; g < b->size.n_groups; g++) {
        const kvpi_size_group *group = &b->size.groups[g];
        uint64_t tokens = n;
        if (group->window_tokens > 0 && tokens > group->window_tokens + record_tokens)
            tokens = group->window_tokens + record_tokens;
        records += group->n_rows * ((tokens + record_tokens - 1) / record_tokens);
    }
    return (double)(records * b->record_blocks) * (double)b->block_bytes;
}

/* of: -1 at the fastest that was measured, 0 by the medians, 1 at the slowest. */
static double load_ns(const bench *b, uint32_t n, int of)
{
    const double record = b->record_blocks * (double)b->block_bytes;
    const double rate = pick(b->reads, b->rounds, -of);
    return pick(b->singles, b->rounds, of) + (prompt_bytes(b, n) - record) / rate * 1e9;
}

static double compute_ns(const bench *b, uint32_t n)
{
    if (b->compute_rate != 0)
        return (double)n / (double)b->compute_rate * 1e9;
    double ns = 0;
    for (uint32_t begin = 0; begin < n; begin += CHUNK_TOKENS) {
        const uint32_t chunk = n - begin < CHUNK_TOKENS ? n - begin : CHUNK_TOKENS;
        kvp_step_seq seq = {.begin = begin, .n_tokens = chunk, .n_sampled = begin + chunk == n};
        const kvp_step step = {.seqs = &seq, .n_seqs = 1, .n_tokens = chunk};
        const kvpi_step_copies none = {0};
        ns += (double)kvpi_step_time_of(&b->step, &step, &none).ns;
    }
    return ns;
}

/* The least prompt of whole records from which on loading is always faster; 0: none up to
 * MAX_TOKENS. */
static uint32_t break_even(const bench *b, int of)
{
    const uint32_t record = b->record_blocks * (uint32_t)b->model_args.size.block_tokens;
    uint32_t from = 0;
    for (uint32_t n = record; n <= MAX_TOKENS; n += record) {
        if (load_ns(b, n, of) >= compute_ns(b, n))
            from = 0;
        else if (from == 0)
            from = n;
    }
    return from;
}

/* --------------------------------------------------------------------------------------- report */

static void print_rate(const char *label, const double *values, uint64_t n)
{
    printf("%-16s %s/s (%s", label, kvpi_text_bytes(median(values, n)).of,
           kvpi_text_bytes(pick(values, n, -1)).of);
    printf(" to %s)\n", kvpi_text_bytes(pick(values, n, 1)).of);
}

static void print_even(const char *label, uint32_t from)
{
    if (from == 0)
        printf("%-16s never, up to %s tokens\n", label, kvpi_text_count(MAX_TOKENS).of);
    else
        printf("%-16s from %s tokens on\n", label, kvpi_text_count(from).of);
}

static void print_text(const bench *b)
{
    printf("model            %s", b->model.name);
    if (b->compute_rate != 0)
        printf(", computed at %s prompt tokens/s\n", kvpi_text_count(b->compute_rate).of);
    else
        printf(", computed by a model of %" PRIu32 " x %s\n", b->model_args.size.tensor_parallel,
               b->model_args.device->title);
    printf("a record         %" PRIu32 " block%s of %" PRIu64 " tokens, %s of KV\n",
           b->record_blocks, b->record_blocks == 1 ? "" : "s", b->model_args.size.block_tokens,
           kvpi_text_bytes(b->record_blocks * (double)b->block_bytes).of);
    if (b->record_memory > 0)
        printf("                 %s of the server's memory\n",
               kvpi_text_bytes((double)b->record_memory).of);
    printf("measured         %" PRIu64 " rounds of %s records%s\n", b->rounds,
           kvpi_text_count(b->n_records).of,
           b->is_server              ? ", on a server"
           : b->directory[0] == '\0' ? ", in memory"
           : b->is_direct            ? ""
                                     : ", through the page cache: there is no direct I/O here");
    printf("write, fresh     %s/s, with a sync\n", kvpi_text_bytes(b->fresh).of);
    print_rate("write, again", b->writes, b->rounds - 1);
    print_rate("read", b->reads, b->rounds);
    printf("one get          %s", kvpi_text_duration(median(b->singles, b->rounds)).of);
    printf(" (%s", kvpi_text_duration(pick(b->singles, b->rounds, -1)).of);
    printf(" to %s)\n\n", kvpi_text_duration(pick(b->singles, b->rounds, 1)).of);
    printf("%10s  %12s  %12s  %12s\n", "tokens", "KV", "load", "compute");
    for (uint32_t n = 512; n <= MAX_TOKENS; n *= 4)
        printf("%10s  %12s  %12s  %12s\n", kvpi_text_count(n).of,
               kvpi_text_bytes(prompt_bytes(b, n)).of, kvpi_text_duration(load_ns(b, n, 0)).of,
               kvpi_text_duration(compute_ns(b, n)).of);
    printf("\nLoading a prompt's KV instead of computing it pays, by the figures above:\n");
    print_even("  median", break_even(b, 0));
    print_even("  slowest", break_even(b, 1));
    print_even("  fastest", break_even(b, -1));
    printf("Copies to the accelerator, and other users of the disk, are not counted.\n");
}

static void add_spread(kvpi_figures *to, const char *key, const double *values, uint64_t n)
{
    kvpi_figures_open(to, key);
    kvpi_figures_real(to, "median", median(values, n));
    kvpi_figures_real(to, "min", pick(values, n, -1));
    kvpi_figures_real(to, "max", pick(values, n, 1));
    kvpi_figures_close(to);
}

static void add_lengths(kvpi_figures *to, const bench *b)
{
    kvpi_figures_open_array(to, "lengths");
    for (uint32_t n = 512; n <= MAX_TOKENS; n *= 4) {
        kvpi_figures_open(to, NULL);
        kvpi_figures_integer(to, "tokens", n);
        kvpi_figures_real(to, "bytes", prompt_bytes(b, n));
        kvpi_figures_real(to, "load_ns", load_ns(b, n, 0));
        kvpi_figures_real(to, "compute_ns", compute_ns(b, n));
        kvpi_figures_close(to);
    }
    kvpi_figures_close(to);
}

static void add_even(kvpi_figures *to, const char *key, const bench *b, int of)
{
    const uint32_t from = break_even(b, of);
    kvpi_figures_integer_if(to, from != 0, key, from);
}

static int print_json(const bench *b)
{
    kvpi_figures made = kvpi_figures_begin();
    kvpi_figures_text(&made, "model", b->model.name);
    kvpi_figures_integer(&made, "record_blocks", b->record_blocks);
    kvpi_figures_integer(&made, "block_bytes", b->block_bytes);
    kvpi_figures_integer(&made, "block_tokens", b->model_args.size.block_tokens);
    kvpi_figures_integer(&made, "rounds", b->rounds);
    kvpi_figures_integer(&made, "records_per_round", b->n_records);
    kvpi_figures_integer_if(&made, b->record_memory > 0, "record_memory_bytes", b->record_memory);
    kvpi_figures_flag(&made, "direct", b->is_direct);
    kvpi_figures_real(&made, "write_fresh_bytes_per_second", b->fresh);
    add_spread(&made, "write_bytes_per_second", b->writes, b->rounds - 1);
    add_spread(&made, "read_bytes_per_second", b->reads, b->rounds);
    add_spread(&made, "get_ns", b->singles, b->rounds);
    add_lengths(&made, b);
    add_even(&made, "pays_from_tokens", b, 0);
    add_even(&made, "pays_from_tokens_at_slowest", b, 1);
    add_even(&made, "pays_from_tokens_at_fastest", b, -1);
    return kvpi_figures_tell(COMMAND, kvpi_figures_end(&made));
}

/* ---------------------------------------------------------------------------------- the command */

static int measure(bench *b)
{
    int status = open_place(b);
    if (status == TOOL_OK)
        status = make_memory(b);
    for (uint64_t round = 0; round < b->rounds && status == TOOL_OK; round++)
        status = measure_round(b, round);
    kvp_store_close(b->store);
    free(b->tokens);
    free(b->kv);
    if (b->directory[0] != '\0' && nftw(b->directory, remove_entry, 16, FTW_DEPTH | FTW_PHYS) != 0)
        status = kvpi_tool_fail(COMMAND, "%s cannot be removed: %s", b->directory, strerror(errno));
    return status;
}

static const kvpi_args_command command = {
    .name = COMMAND,
    .about = "Measure how fast a store writes and reads KV of a model, and say from which\n"
             "length of prompt loading KV is faster than computing it.\n\n"
             "Usage: kvpager store bench --model NAME [OPTIONS] PATH\n\n"
             "PATH is a directory; what engines keep there is not touched: the measurement has\n"
             "a directory of its own below it, and removes it. Checksums are made and\n"
             "verified, as always. redis://HOST measures a server: records of the\n"
             "measurement are dropped after each round.\n",
    .options = options,
    .n_options = sizeof options / sizeof *options,
    .more = "\nExit status: 0 done, 1 failed, 2 wrong usage.\n",
    .check = check_options};

int kvpi_store_bench(int argc, char **argv)
{
    kvpi_args args;
    bench b = {.bytes = UINT64_C(256) << 20, .rounds = 5};
    kvpi_model_args_init(&b.model_args, "'kvpager size --list'");
    int status = kvpi_args_parse(&args, &command, argc, argv, &b);
    if (status != KVPI_ARGS_GO)
        return status;
    status = set_model(&args, &b);
    if (status == TOOL_OK)
        status = measure(&b);
    if (status != TOOL_OK)
        return status;
    if (b.json)
        return print_json(&b);
    print_text(&b);
    return TOOL_OK;
}
