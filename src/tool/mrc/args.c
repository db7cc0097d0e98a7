/* Owns the options of `kvpager mrc`: what there is, and what values are allowed. */
#include "tool/mrc/args.h"

#include <kvpager/identity.h>
#include <kvpager/kvpager.h>
#include <stdio.h>
#include <string.h>

#include "tool/replay/replay.h"

enum {
    /* the cache, after tool/log/args.h's */
    OPT_BLOCK_TOKENS = KVPI_TRACE_OPTIONS,
    OPT_SIZES,
    OPT_POLICY,
    OPT_ONLY_LRU,
    OPT_SAMPLE,
    /* other tiers */
    OPT_HOST_SIZES,
    OPT_STORE_SIZES,
    OPT_RECORD_BLOCKS,
    OPT_STORE_WRITES,
    /* memory */
    OPT_KV_BYTES,
    OPT_MODEL,
    OPT_MODEL_CONFIG,
    OPT_DEVICE,
    OPT_TP,
    OPT_DTYPE,
    OPT_WEIGHTS_DTYPE,
    OPT_UTILIZATION,
    OPT_OVERHEAD,
    /* the output */
    OPT_REPORT,
    OPT_CURVE,
    OPT_JSON,
    OPT_HELP,
    N_OPTIONS
};

static const kvpi_args_option options_table[] = {
    KVPI_TRACE_OPTIONS_TABLE,

    [OPT_BLOCK_TOKENS] = {"--block-tokens", "N",
                          "tokens per block, 1 to 65536 (default 16); must\n"
                          "divide the trace's block",
                          0},
    [OPT_SIZES] = {"--sizes", "LIST",
                   "sizes to show, such as 4096,8192,40GiB: blocks, or\n"
                   "with a unit KV memory (default: doubling, from what\n"
                   "the largest request needs)",
                   0},
    [OPT_POLICY] = {"--policy", "LIST",
                    "of lru, fifo, optimum and learned: what is shown.\n"
                    "Each but LRU takes a pass for each size, learned for\n"
                    "four sizes at a time (default: lru,fifo,optimum)",
                    0},
    [OPT_ONLY_LRU] = {"--only-lru", NULL, "the same as --policy lru", 0},
    [OPT_SAMPLE] = {"--sample", "F",
                    "look at a share of the blocks, chosen by hash, and\n"
                    "estimate: 0.000001 to 1 (default 1: exact)",
                    0},

    [OPT_HOST_SIZES] = {"--host-sizes", "LIST",
                        "sizes of a host tier: then hits of device and host\n"
                        "together are shown, too, for each pair of sizes",
                        0},
    [OPT_STORE_SIZES] = {"--store-sizes", "LIST",
                         "and sizes of a store behind them, such as a disk", 0},
    [OPT_RECORD_BLOCKS] = {"--record-blocks", "LIST",
                           "blocks of a record of the store: 1, 2, 4 ... 64\n"
                           "(default: what the store would choose; 8 if the KV\n"
                           "of a token is not known)",
                           0},
    [OPT_STORE_WRITES] = {"--store-writes", "WHAT",
                          "through: every record of a request; second (default):\n"
                          "those that it hits",
                          0},

    [OPT_KV_BYTES] = {"--kv-bytes-per-token", "N",
                      "KV bytes of one token: then sizes are shown in bytes\n"
                      "too",
                      0},
    [OPT_MODEL] = {"--model", "NAME", "or a model of 'kvpager size --list'", 0},
    [OPT_MODEL_CONFIG] = {"--model-config", "FILE", "or its Hugging Face config.json", 0},
    [OPT_DEVICE] = {"--device", "NAME",
                    "an accelerator of 'kvpager size --list': its size is\n"
                    "one of those shown, beside --sizes, too",
                    0},
    [OPT_TP] = {"--tp", "N", "tensor parallel over N of them (default 1); bytes are\nof one", 0},
    [OPT_DTYPE] = {"--dtype", "TYPE", "of KV: bf16, f16, f32, fp8, int8\n(default: the model's)",
                   0},
    [OPT_WEIGHTS_DTYPE] = {"--weights-dtype", "TYPE",
                           "bf16, f16, f32, fp8, int8, int4, mxfp4 (default: the\n"
                           "model's)",
                           0},
    [OPT_UTILIZATION] = {"--utilization", "F", "share of the memory that is used (default 0.9)", 0},
    [OPT_OVERHEAD] = {"--overhead", "SIZE", "of it, for other than weights and KV (default 2GiB)",
                      0},

    [OPT_REPORT] = {"--report", "FILE", "write a page with the curve, one HTML file", 0},
    [OPT_CURVE] = {"--curve", "FILE", "write every size at which the hits change, as CSV", 0},
    [OPT_JSON] = {"--json", NULL, "print one JSON object instead of the table", 0},
    [OPT_HELP] = {"--help", NULL, "print this text", 'h'},
};

_Static_assert(sizeof options_table / sizeof *options_table == N_OPTIONS, "a row for each");

static void print_group(const char *title, int first, int end)
{
    printf("\n%s:\n", title);
    kvpi_args_print(options_table + first, (size_t)(end - first));
}

void kvpi_mrc_args_help(void)
{
    fputs("Usage: kvpager mrc [OPTIONS] FILE\n"
          "\n"
          "Say what a cache of every size would hit (a miss-ratio curve), from one pass\n"
          "over a request trace: one request after the other, as 'kvpager replay\n"
          "--sequential' serves them, and with exactly its figures at each size at which no\n"
          "request is rejected. Beside the cache's own replacement (LRU): first in, first\n"
          "out, and the optimum that knows the future (Belady). Hits are of whole blocks.\n"
          "See docs/MRC.md.\n"
          "\n"
          "FILE is '-' for standard input; formats as for replay.\n",
          stdout);
    print_group("Trace", 0, OPT_BLOCK_TOKENS);
    print_group("Cache", OPT_BLOCK_TOKENS, OPT_HOST_SIZES);
    print_group("Other tiers", OPT_HOST_SIZES, OPT_KV_BYTES);
    print_group("Memory", OPT_KV_BYTES, OPT_REPORT);
    print_group("Output", OPT_REPORT, N_OPTIONS);
}

/* ------------------------------------------------------------------------------ single options */

/* One of a list: digits alone are blocks. */
static int add_size(const kvpi_args *args, int option, const char *text, kvpi_mrc_sizes *out)
{
    static const uint64_t blocks[2] = {1, KVPI_REPLAY_MAX_BLOCKS};
    static const uint64_t record[2] = {1, KVP_RECORD_BLOCKS_MAX};
    if (out->n == KVPI_MRC_MAX_POINTS)
        return kvpi_args_wrong(args, "%s has more than %d sizes", options_table[option].name,
                               KVPI_MRC_MAX_POINTS);
    kvpi_mrc_size *size = &out->of[out->n++];
    size->is_bytes = option != OPT_RECORD_BLOCKS && text[strspn(text, "0123456789")] != '\0';
    if (size->is_bytes)
        return kvpi_args_size(args, option, text, &size->number);
    if (option != OPT_RECORD_BLOCKS)
        return kvpi_args_number(args, option, text, blocks, &size->number);
    if (kvpi_args_number(args, option, text, record, &size->number) != 0)
        return KVPI_ARGS_WRONG;
    return (size->number & (size->number - 1)) == 0
               ? 0
               : kvpi_args_wrong(args, "--record-blocks is '%s', expected a power of two", text);
}

static int apply_sizes(const kvpi_args *args, int option, const char *value, kvpi_mrc_sizes *out)
{
    out->n = 0;
    for (;;) {
        char text[32];
        size_t n = strcspn(value, ",");
        if (n >= sizeof text)
            return kvpi_args_wrong(args, "%s has '%.*s', expected numbers of blocks or sizes",
                                   options_table[option].name, (int)n, value);
        memcpy(text, value, n);
        text[n] = '\0';
        if (add_size(args, option, text, out) != 0)
            return KVPI_ARGS_WRONG;
        if (value[n] == '\0')
            return 0;
        value += n + 1;
    }
}

/* Six decimals, which the reader of thousandths does not have. */
static int apply_sample(const kvpi_args *args, const char *value, kvpi_mrc_args *out)
{
    uint64_t millionths = 0, weight = 1000000;
    const char *at = value;
    for (; *at >= '0' && *at <= '1' && weight == 1000000; at++, weight /= 10)
        millionths = (uint64_t)(*at - '0') * 1000000;
    if (at > value && *at == '.')
        for (at++, weight = 100000; *at >= '0' && *at <= '9' && weight > 0; at++, weight /= 10)
            millionths += (uint64_t)(*at - '0') * weight;
    if (at == value || *at != '\0' || millionths < 1 || millionths > 1000000)
        return kvpi_args_wrong(args,
                               "--sample is '%s', expected a number from 0.000001 to 1 with at "
                               "most six decimals",
                               value);
    out->options.sample_millionths = millionths;
    return 0;
}

/* LRU is the curve, and always shown. */
static int apply_policy(const kvpi_args *args, const char *value, kvpi_mrc_shown *out)
{
    *out = (kvpi_mrc_shown){0};
    for (;;) {
        size_t n = strcspn(value, ",");
        if (n == 4 && memcmp(value, "fifo", n) == 0)
            out->fifo = true;
        else if (n == 7 && memcmp(value, "optimum", n) == 0)
            out->optimum = true;
        else if (n == 7 && memcmp(value, "learned", n) == 0)
            out->learned = true;
        else if (n != 3 || memcmp(value, "lru", n) != 0)
            return kvpi_args_wrong(
                args, "--policy has '%.*s', expected lru, fifo, optimum or learned", (int)n, value);
        if (value[n] == '\0')
            return 0;
        value += n + 1;
    }
}

static int apply_cache(const kvpi_args *args, int option, const char *value, kvpi_mrc_args *out)
{
    static const uint64_t block_tokens[2] = {1, KVP_BLOCK_TOKENS_MAX};
    switch (option) {
    case OPT_BLOCK_TOKENS:
        return kvpi_args_number(args, option, value, block_tokens, &out->options.block_tokens);
    case OPT_SIZES: return apply_sizes(args, option, value, &out->sizes);
    case OPT_POLICY: return apply_policy(args, value, &out->shown);
    case OPT_ONLY_LRU: out->shown = (kvpi_mrc_shown){0}; return 0;
    case OPT_SAMPLE: return apply_sample(args, value, out);
    default: return KVPI_ARGS_WRONG;
    }
}

static int apply_tiers(const kvpi_args *args, int option, const char *value, kvpi_mrc_args *out)
{
    static const char *const writes[] = {"through", "second", NULL};
    size_t choice = 0;
    switch (option) {
    case OPT_HOST_SIZES: return apply_sizes(args, option, value, &out->hosts);
    case OPT_STORE_SIZES: return apply_sizes(args, option, value, &out->stores);
    case OPT_RECORD_BLOCKS: return apply_sizes(args, option, value, &out->records);
    case OPT_STORE_WRITES:
        if (kvpi_args_choice(args, option, value, writes, &choice) != 0)
            return KVPI_ARGS_WRONG;
        out->writes = choice == 0 ? KVPI_MRC_THROUGH : KVPI_MRC_SECOND;
        return 0;
    default: return KVPI_ARGS_WRONG;
    }
}

static int apply_device(const kvpi_args *args, const char *value, kvpi_mrc_args *out)
{
    out->model.device = kvpi_devices_find(value);
    if (out->model.device == NULL)
        return kvpi_args_wrong(args, "--device is '%s', which is not in 'kvpager size --list'",
                               value);
    out->model.size.memory_bytes = out->model.device->memory_bytes;
    return 0;
}

static int apply_memory(const kvpi_args *args, int option, const char *value, kvpi_mrc_args *out)
{
    switch (option) {
    case OPT_KV_BYTES: return kvpi_args_size(args, option, value, &out->kv_bytes_per_token);
    case OPT_MODEL: out->model.model_name = value; return 0;
    case OPT_MODEL_CONFIG: out->model.config_path = value; return 0;
    case OPT_DEVICE: return apply_device(args, value, out);
    case OPT_TP: return kvpi_model_args_tp(args, option, value, &out->model);
    case OPT_DTYPE: return kvpi_model_args_dtype(args, option, value, true, &out->model);
    case OPT_WEIGHTS_DTYPE: return kvpi_model_args_dtype(args, option, value, false, &out->model);
    case OPT_UTILIZATION: return kvpi_model_args_utilization(args, option, value, &out->model);
    case OPT_OVERHEAD: return kvpi_model_args_overhead(args, option, value, &out->model);
    default: return KVPI_ARGS_WRONG;
    }
}

static int apply_output(int option, const char *value, kvpi_mrc_args *out)
{
    switch (option) {
    case OPT_REPORT: out->report = value; return 0;
    case OPT_CURVE: out->curve = value; return 0;
    case OPT_JSON: out->json = true; return 0;
    case OPT_HELP: out->help = true; return 0;
    default: return KVPI_ARGS_WRONG;
    }
}

static int apply_option(const kvpi_args *args, int option, const char *value, uint64_t *given,
                        kvpi_mrc_args *out)
{
    if (option >= 0)
        *given |= UINT64_C(1) << option;
    if (option < KVPI_TRACE_OPTIONS)
        return kvpi_trace_args_apply(args, option, value, &out->options.trace);
    if (option < OPT_HOST_SIZES)
        return apply_cache(args, option, value, out);
    if (option < OPT_KV_BYTES)
        return apply_tiers(args, option, value, out);
    if (option < OPT_REPORT)
        return apply_memory(args, option, value, out);
    return apply_output(option, value, out);
}

/* -------------------------------------------------------------------------------- together */

static int check_sizes(const kvpi_args *args, int option, const kvpi_mrc_sizes *sizes)
{
    for (size_t i = 0; i < sizes->n; i++)
        if (sizes->of[i].is_bytes)
            return kvpi_args_wrong(args, "%s in bytes need --kv-bytes-per-token or --model",
                                   options_table[option].name);
    return 0;
}

static int check_tiers(const kvpi_args *args, uint64_t given, const kvpi_mrc_args *out)
{
    for (int option = OPT_RECORD_BLOCKS; option <= OPT_STORE_WRITES && out->stores.n == 0; option++)
        if (given >> option & 1)
            return kvpi_args_wrong(args, "%s needs --store-sizes", options_table[option].name);
    if (out->stores.n > 0 && out->hosts.n == 0)
        return kvpi_args_wrong(args, "--store-sizes needs --host-sizes: loads come to the host");
    if (out->hosts.n > 0 && out->options.sample_millionths != 1000000)
        return kvpi_args_wrong(args, "--host-sizes and --sample exclude each other");
    if (out->shown.learned && out->options.sample_millionths != 1000000)
        return kvpi_args_wrong(args, "--policy learned and --sample exclude each other");
    return 0;
}

static int check_options(const kvpi_args *args, uint64_t given, const kvpi_mrc_args *out)
{
    const kvpi_model_args *model = &out->model;
    bool has_model = model->model_name != NULL || model->config_path != NULL;
    if (kvpi_trace_args_check(args, &out->options.trace) != 0)
        return KVPI_ARGS_WRONG;
    if (model->model_name != NULL && model->config_path != NULL)
        return kvpi_args_wrong(args, "--model and --model-config exclude each other");
    if (has_model && out->kv_bytes_per_token != 0)
        return kvpi_args_wrong(args, "--kv-bytes-per-token and %s exclude each other",
                               model->model_name != NULL ? "--model" : "--model-config");
    for (int option = OPT_DEVICE; option < OPT_REPORT && !has_model; option++)
        if (given >> option & 1)
            return kvpi_args_wrong(args, "%s needs --model or --model-config",
                                   options_table[option].name);
    for (int option = OPT_WEIGHTS_DTYPE; option < OPT_REPORT && model->device == NULL; option++)
        if (given >> option & 1)
            return kvpi_args_wrong(args, "%s needs --device", options_table[option].name);
    if (!has_model && out->kv_bytes_per_token == 0 &&
        (check_sizes(args, OPT_SIZES, &out->sizes) != 0 ||
         check_sizes(args, OPT_HOST_SIZES, &out->hosts) != 0 ||
         check_sizes(args, OPT_STORE_SIZES, &out->stores) != 0))
        return KVPI_ARGS_WRONG;
    return check_tiers(args, given, out);
}

int kvpi_mrc_args_parse(int argc, char **argv, kvpi_args *args, kvpi_mrc_args *out)
{
    const char *value = NULL;
    uint64_t given = 0;
    *args = (kvpi_args){.command = "mrc",
                        .argc = argc,
                        .argv = argv,
                        .options = options_table,
                        .n_options = N_OPTIONS,
                        .next = 1};
    *out = (kvpi_mrc_args){
        .options = {.command = "mrc", .block_tokens = 16, .sample_millionths = 1000000},
        .shown = {.fifo = true, .optimum = true},
        .writes = KVPI_MRC_SECOND};
    kvpi_trace_args_init(&out->options.trace);
    kvpi_model_args_init(&out->model, "'kvpager size --list'", false);
    for (;;) {
        int option = kvpi_args_next(args, &value);
        if (option == KVPI_ARGS_END)
            return check_options(args, given, out);
        if (apply_option(args, option, value, &given, out) != 0)
            return -1;
        if (out->help)
            return 0;
    }
}
