/* options: a table of names. */
#include "options.h"

#include <stdlib.h>
#include <string.h>

#include "base/amount.h"

/* kvpager/llama.h: of 256 ids, a third of those that are left without a spare one and a keeper. */
enum { WHY_BYTES = 200, HOST_PARALLEL_MOST = 84 };

typedef enum kind { TEXT, COUNT, LAYERS, REAL, SEED, SIZE, TYPE, FLASH, FORMS, FLAG } kind;

typedef struct option {
    const char *names[4];
    kind kind;
    size_t offset;
    double lowest, highest;
    const char *help;
} option;

#define AT(field) offsetof(kvpi_options, field)
#define ANY       4294967295.0

static const option table[] = {
    {{"-m", "--model"}, TEXT, AT(model), 0, 0, "FILE  the model, GGUF (required)"},
    {{"-c", "--ctx-size"},
     COUNT,
     AT(ctx_size),
     0,
     1 << 24,
     "N  cells, for all requests together; 0: as the model was trained (default 0)"},
    {{"-ngl", "--gpu-layers", "--n-gpu-layers"},
     LAYERS,
     AT(gpu_layers),
     -1,
     1 << 20,
     "N  layers on the GPU; -1: all (default -1)"},
    {{"-t", "--threads"}, COUNT, AT(threads), 0, 1024, "N  threads; 0: llama.cpp's default"},
    {{"-b", "--batch-size"},
     COUNT,
     AT(batch_size),
     1,
     1 << 20,
     "N  tokens of a step, at most (default 512)"},
    {{"-ub", "--ubatch-size"},
     COUNT,
     AT(ubatch_size),
     1,
     1 << 20,
     "N  of them computed at once (default 512)"},
    {{"-np", "--parallel"},
     COUNT,
     AT(parallel),
     1,
     127,
     "N  sequences that run at once (default 32)"},
    {{"-n", "--predict", "--n-predict"},
     LAYERS,
     AT(predict),
     -1,
     1 << 24,
     "N  new tokens if a request does not say; -1: as many as fit (default -1)"},
    {{"-ctk", "--cache-type-k"}, TYPE, AT(type_k), 0, 0, "TYPE  of K (default f16)"},
    {{"-ctv", "--cache-type-v"}, TYPE, AT(type_v), 0, 0, "TYPE  of V (default f16)"},
    {{"-fa", "--flash-attn"}, FLASH, AT(flash_attn), 0, 0, "on|off|auto  (default auto)"},
    {{"--host"}, TEXT, AT(host), 0, 0, "ADDRESS  (default 127.0.0.1)"},
    {{"--port"}, COUNT, AT(port), 0, 65535, "N  0: any that is free (default 8080)"},
    {{"--api-key"}, TEXT, AT(api_key), 0, 0, "KEY  that requests must give"},
    {{"-a", "--alias"}, TEXT, AT(alias), 0, 0, "NAME  of the model for clients"},
    {{"--chat-template"}, TEXT, AT(chat_template), 0, 0, "NAME  one that llama.cpp has"},
    {{"--temp", "--temperature"}, REAL, AT(sampling.temperature), 0, 100, "X  (default 0.8)"},
    {{"--top-k"}, LAYERS, AT(sampling.top_k), 0, 1 << 24, "N  (default 40)"},
    {{"--top-p"}, REAL, AT(sampling.top_p), 0, 1, "X  (default 0.95)"},
    {{"--min-p"}, REAL, AT(sampling.min_p), 0, 1, "X  (default 0.05)"},
    {{"-s", "--seed"}, SEED, AT(sampling.seed), -1, ANY, "N  -1: another one for each request"},
    {{"--block-tokens"}, COUNT, AT(block_tokens), 1, 1024, "N  of a block (default 4)"},
    {{"--max-queue"},
     COUNT,
     AT(max_queue),
     1,
     65536,
     "N  requests that run or wait; more get 429 (default 256)"},
    {{"--max-connections"}, COUNT, AT(max_connections), 1, 16384, "N  (default 512)"},
    {{"--max-body-kib"}, COUNT, AT(max_body_kib), 1, 1 << 20, "N  of a request (default 4096)"},
    {{"--max-tenants"},
     COUNT,
     AT(max_tenants),
     1,
     65535,
     "N  values of cache_salt that have a cache at once (default 64)"},
    {{"--lora"},
     TEXT,
     AT(lora),
     0,
     0,
     "FILE  an adapter, GGUF, that all requests are computed with"},
    {{"--host-memory"},
     SIZE,
     AT(host_memory),
     0,
     0,
     "SIZE  of evicted KV that is kept in host memory: 8G (default none)"},
    {{"--cache-disk"},
     TEXT,
     AT(cache_disk),
     0,
     0,
     "DIR  keeps what is computed on a disk, below --host-memory"},
    {{"--cache-disk-size"},
     SIZE,
     AT(cache_disk_size),
     0,
     0,
     "SIZE  that DIR may take (default 8G)"},
    {{"--idle-cells"},
     COUNT,
     AT(idle_cells),
     0,
     1 << 24,
     "N  cells of cached prefixes that no request uses, at most; 0: all (default 0)"},
    {{"--snapshot"},
     TEXT,
     AT(snapshot),
     0,
     0,
     "FILE  keeps what is cached from one run to the next"},
    {{"--publish"},
     TEXT,
     AT(publish),
     0,
     0,
     "ENDPOINT  tells routers what is cached: tcp://127.0.0.1:5557"},
    {{"--publish-replay"},
     TEXT,
     AT(publish_replay),
     0,
     0,
     "ENDPOINT  answers routers that missed something"},
    {{"--publish-topic"}, TEXT, AT(publish_topic), 0, 0, "TEXT  of messages, as kv@HOST@MODEL"},
    {{"--publish-as"},
     FORMS,
     AT(publish_as),
     0,
     0,
     "LIST  other forms: arrays,vllm-hashes,sglang-media,plain-replay"},
    {{"--record"},
     TEXT,
     AT(record),
     0,
     0,
     "FILE  records what is asked, for kvpager replay and mrc"},
    {{"-v", "--verbose"}, FLAG, AT(is_verbose), 0, 0, "  llama.cpp's log"},
};

enum { N_OPTIONS = sizeof table / sizeof table[0] };

static const struct {
    const char *name;
    enum ggml_type type;
} types[] = {{"f32", GGML_TYPE_F32},   {"f16", GGML_TYPE_F16},   {"bf16", GGML_TYPE_BF16},
             {"q8_0", GGML_TYPE_Q8_0}, {"q4_0", GGML_TYPE_Q4_0}, {"q4_1", GGML_TYPE_Q4_1},
             {"q5_0", GGML_TYPE_Q5_0}, {"q5_1", GGML_TYPE_Q5_1}, {"iq4_nl", GGML_TYPE_IQ4_NL}};

int kvpi_options_is_loopback(const char *host)
{
    return strncmp(host, "127.", 4) == 0 || strcmp(host, "localhost") == 0 ||
           strcmp(host, "::1") == 0;
}

static void set_defaults(kvpi_options *options)
{
    memset(options, 0, sizeof *options);
    options->host = "127.0.0.1";
    options->port = 8080;
    options->gpu_layers = -1;
    options->batch_size = options->ubatch_size = 512;
    options->parallel = 32;
    options->type_k = options->type_v = GGML_TYPE_F16;
    options->flash_attn = LLAMA_FLASH_ATTN_TYPE_AUTO;
    kvpi_sampling_init(&options->sampling);
    options->block_tokens = 4;
    options->max_queue = 256;
    options->max_connections = 512;
    options->max_body_kib = 4096;
    options->max_tenants = 64;
    options->cache_disk_size = (uint64_t)8 << 30;
}

static const option *find(const char *name)
{
    for (size_t i = 0; i < N_OPTIONS; i++)
        for (size_t k = 0; k < 4 && table[i].names[k] != NULL; k++)
            if (strcmp(table[i].names[k], name) == 0)
                return &table[i];
    return NULL;
}

static int set_number(const option *of, void *at, const char *value)
{
    char *end;
    const double x = strtod(value, &end);
    if (end == value || *end != '\0' || !(x >= of->lowest && x <= of->highest))
        return -1;
    if (of->kind == REAL)
        *(float *)at = (float)x;
    else if (x != (double)(int64_t)x)
        return -1;
    else if (of->kind == LAYERS)
        *(int32_t *)at = (int32_t)x;
    else
        *(uint32_t *)at = (uint32_t)(int64_t)x;
    return 0;
}

/* Less than a mebibyte without a unit is a unit forgotten. */
static int read_size(const char *value, uint64_t *out)
{
    return kvpi_amount_read(value, 1 << 20, out);
}

static int set_type(void *at, const char *value)
{
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (strcmp(types[i].name, value) == 0) {
            *(enum ggml_type *)at = types[i].type;
            return 0;
        }
    return -1;
}

static int set_flash(void *at, const char *value)
{
    enum llama_flash_attn_type *type = at;
    if (strcmp(value, "on") == 0 || strcmp(value, "1") == 0)
        *type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
    else if (strcmp(value, "off") == 0 || strcmp(value, "0") == 0)
        *type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
    else if (strcmp(value, "auto") == 0)
        *type = LLAMA_FLASH_ATTN_TYPE_AUTO;
    else
        return -1;
    return 0;
}

/* Words with commas between them. */
static int set_forms(uint32_t *at, const char *value)
{
    static const char *const names[] = {"arrays", "vllm-hashes", "sglang-media", "plain-replay"};
    *at = 0;
    for (const char *word = value; word != NULL;) {
        const size_t n = strcspn(word, ",");
        size_t i = 0;
        while (i < 4 && (strlen(names[i]) != n || strncmp(names[i], word, n) != 0))
            i++;
        if (i == 4)
            return -1;
        *at |= 1u << i;
        word = word[n] == ',' ? word + n + 1 : NULL;
    }
    return 0;
}

static int set(kvpi_options *options, const option *of, const char *value)
{
    void *at = (char *)options + of->offset;
    switch (of->kind) {
    case TEXT: *(const char **)at = value; return value[0] == '\0' ? -1 : 0;
    case SIZE: return read_size(value, at) == KVPI_AMOUNT_OK ? 0 : -1;
    case TYPE: return set_type(at, value);
    case FLASH: return set_flash(at, value);
    case FORMS: return set_forms(at, value);
    case FLAG: *(int *)at = 1; return 0;
    default: return set_number(of, at, value);
    }
}

static int wrong(char *why, const char *name, const char *text)
{
    (void)snprintf(why, WHY_BYTES, "%s %s", name, text);
    return KVPI_OPTIONS_WRONG;
}

/* Says what the option could be. */
static int wrong_value(char *why, const option *of, const char *value)
{
    char range[64], text[160];
    const char *expected = range;
    uint64_t bytes;
    (void)snprintf(range, sizeof range, "%s%.10g to %.10g",
                   of->kind == REAL ? "" : "a whole number from ", of->lowest, of->highest);
    if (of->kind == TEXT)
        expected = "some text";
    else if (of->kind == SIZE)
        expected = "bytes, such as 1073741824, 512M or 8G";
    else if (of->kind == TYPE)
        expected = "f32, f16, bf16, q8_0, q4_0, q4_1, q5_0, q5_1 or iq4_nl";
    else if (of->kind == FLASH)
        expected = "on, off or auto";
    else if (of->kind == FORMS)
        expected = "arrays, vllm-hashes, sglang-media, plain-replay, with commas between them";
    if (of->kind == SIZE && read_size(value, &bytes) == KVPI_AMOUNT_BARE)
        (void)snprintf(text, sizeof text, "is '%.60s', which is bytes: %.60sG?", value, value);
    else
        (void)snprintf(text, sizeof text, "is '%.60s', expected %s", value, expected);
    return wrong(why, of->names[0], text);
}

int kvpi_options_read(kvpi_options *options, int argc, char *const *argv, char *out_why)
{
    set_defaults(options);
    out_why[0] = '\0';
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "-h") == 0 || strcmp(argv[i], "--help") == 0)
            return KVPI_OPTIONS_HELP;
        const option *of = find(argv[i]);
        if (of == NULL)
            return wrong(out_why, argv[i], "is no option of kvpager-serve (--help)");
        const char *value = of->kind == FLAG ? "" : argv[++i];
        if (value == NULL)
            return wrong(out_why, of->names[0], "lacks its value");
        if (set(options, of, value) != 0)
            return wrong_value(out_why, of, value);
    }
    if ((int32_t)options->predict < 0)
        options->predict = 0;
    if (options->model == NULL)
        return wrong(out_why, "-m", "is missing: the model");
    if (options->batch_size < options->parallel)
        return wrong(out_why, "-b", "is less than -np: a step has a token of each sequence");
    if (options->host_memory > 0 && options->flash_attn != LLAMA_FLASH_ATTN_TYPE_ENABLED)
        return wrong(out_why, "--host-memory", "needs -fa on: V lies transposed otherwise");
    if (options->host_memory > 0 && options->parallel > HOST_PARALLEL_MOST)
        return wrong(out_why, "-np", "is more than 84: with --host-memory a sequence has 3 ids");
    if (options->cache_disk != NULL && options->host_memory == 0)
        return wrong(out_why, "--cache-disk", "needs --host-memory: what is read goes there first");
    if (options->publish == NULL && options->publish_replay != NULL)
        return wrong(out_why, "--publish-replay", "needs --publish");
    if (options->publish == NULL && options->publish_topic != NULL)
        return wrong(out_why, "--publish-topic", "needs --publish");
    if (options->publish == NULL && options->publish_as != 0)
        return wrong(out_why, "--publish-as", "needs --publish");
    return KVPI_OPTIONS_OK;
}

void kvpi_options_help(FILE *file)
{
    fprintf(file, "usage: kvpager-serve -m FILE [OPTION...]\n\n"
                  "Serves a model by the OpenAI protocol: kvpager in front of llama.cpp.\n\n");
    for (size_t i = 0; i < N_OPTIONS; i++) {
        for (size_t k = 0; k < 4 && table[i].names[k] != NULL; k++)
            fprintf(file, "%s%s", k == 0 ? "  " : ", ", table[i].names[k]);
        fprintf(file, " %s\n", table[i].help);
    }
}
