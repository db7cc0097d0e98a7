/* Owns the options of `kvpager mrc`: what there is, and what values are allowed. */
#include "tool/mrc/mrc_args.h"

#include <kvpager/identity.h>
#include <kvpager/all.h>
#include <stdio.h>
#include <string.h>

#include "tool/replay/replay_cache.h"

/* One of a list: digits alone are blocks. */
static int add_size(const kvpi_args *args, const kvpi_args_option *option, const char *text,
                    kvpi_mrc_sizes *out)
{
    const bool is_record = option->most == KVP_RECORD_BLOCKS_MAX;
    if (out->n == KVPI_MRC_MAX_POINTS)
        return kvpi_args_wrong(args, "%s has more than %d sizes", option->name,
                               KVPI_MRC_MAX_POINTS);
    kvpi_mrc_size *size = &out->of[out->n++];
    size->is_bytes = !is_record && text[strspn(text, "0123456789")] != '\0';
    kvpi_args_reader *read = is_record        ? kvpi_args_power
                             : size->is_bytes ? kvpi_args_size
                                              : kvpi_args_number;
    return read(args, option, text, &size->number);
}

static int read_sizes(const kvpi_args *args, const kvpi_args_option *option, const char *value,
                      void *at)
{
    kvpi_mrc_sizes *out = at;
    out->n = 0;
    for (;;) {
        char text[32];
        size_t n = strcspn(value, ",");
        if (n >= sizeof text)
            return kvpi_args_wrong(args, "%s has '%.*s', expected numbers of blocks or sizes",
                                   option->name, (int)n, value);
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
static int read_sample(const kvpi_args *args, const kvpi_args_option *option, const char *value,
                       void *out)
{
    (void)option;
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
    *(uint64_t *)out = millionths;
    return 0;
}

static int only_lru(const kvpi_args *args, const kvpi_args_option *option, const char *value,
                    void *at)
{
    (void)args;
    (void)option;
    (void)value;
    *(kvpi_mrc_shown *)at = (kvpi_mrc_shown){0};
    return 0;
}

const kvpi_mrc_policy_name kvpi_mrc_policy_names[KVPI_MRC_POLICIES] = {
    [KVPI_MRC_FIFO] = {"fifo", "FIFO"},
    [KVPI_MRC_OPTIMUM] = {"optimum", "optimum"},
    [KVPI_MRC_ARC] = {"arc", "ARC"},
    [KVPI_MRC_S3FIFO] = {"s3fifo", "S3-FIFO"},
    [KVPI_MRC_LEARNED] = {"learned", "learned"},
};

static bool is_named(const char *name, const char *text, size_t n)
{
    return strlen(name) == n && memcmp(name, text, n) == 0;
}

/* LRU is the curve, and always shown. */
static int read_policy(const kvpi_args *args, const kvpi_args_option *option, const char *value,
                       void *at)
{
    kvpi_mrc_shown *out = at;
    (void)option;
    *out = (kvpi_mrc_shown){0};
    for (;;) {
        size_t n = strcspn(value, ","), i = 0;
        while (i < KVPI_MRC_POLICIES && !is_named(kvpi_mrc_policy_names[i].name, value, n))
            i++;
        if (i < KVPI_MRC_POLICIES)
            out->of[i] = true;
        else if (!is_named("lru", value, n))
            return kvpi_args_wrong(
                args, "--policy has '%.*s', expected lru, fifo, optimum, arc, s3fifo or learned",
                (int)n, value);
        if (value[n] == '\0')
            return 0;
        value += n + 1;
    }
}

/* In the order of KVPI_MRC_THROUGH and KVPI_MRC_SECOND. */
static const char *const writes[] = {"through", "second", NULL};

#define AT(member) .at = offsetof(kvpi_mrc_args, member)

static const kvpi_args_option options_table[] = {
    KVPI_TRACE_OPTIONS(kvpi_mrc_args, options.trace),
    {"--block-tokens", "N",
     "tokens per block, 1 to 65536 (default 16); must\n"
     "divide the trace's block or be a multiple of it",
     kvpi_args_number, AT(options.block_tokens), 1, KVP_BLOCK_TOKENS_MAX, .title = "Cache"},
    {"--sizes", "LIST",
     "sizes to show, such as 4096,8192,40GiB: blocks, or\n"
     "with a unit KV memory (default: doubling, from what\n"
     "the largest request needs)",
     read_sizes, AT(sizes), 1, KVPI_REPLAY_MAX_BLOCKS},
    {"--policy", "LIST",
     "of lru, fifo, optimum, arc, s3fifo and learned: what\n"
     "is shown. Each but LRU takes a pass for each size,\n"
     "learned for four at a time (default:\n"
     "lru,fifo,optimum)",
     read_policy, AT(shown)},
    {"--only-lru", NULL, "the same as --policy lru", only_lru, AT(shown)},
    {"--sample", "F",
     "look at a share of the blocks, chosen by hash, and\n"
     "estimate: 0.000001 to 1 (default 1: exact)",
     read_sample, AT(options.sample_millionths)},
    {"--host-sizes", "LIST",
     "sizes of a host tier: then hits of device and host\n"
     "together are shown, too, for each pair of sizes",
     read_sizes, AT(hosts), 1, KVPI_REPLAY_MAX_BLOCKS, .title = "Other tiers"},
    {"--store-sizes", "LIST", "and sizes of a store behind them, such as a disk", read_sizes,
     AT(stores), 1, KVPI_REPLAY_MAX_BLOCKS},
    {"--record-blocks", "LIST",
     "blocks of a record of the store: 1, 2, 4 ... 64\n"
     "(default: what the store would choose; 8 if the KV\n"
     "of a token is not known)",
     read_sizes, AT(records), 1, KVP_RECORD_BLOCKS_MAX},
    {"--store-writes", "WHAT",
     "through: every record of a request; second (default):\n"
     "those that it hits",
     kvpi_args_choice, AT(writes), .choices = writes},
    {"--kv-bytes-per-token", "N",
     "KV bytes of one token: then sizes are shown in bytes\n"
     "too",
     kvpi_args_bytes, AT(kv_bytes_per_token), .title = "Memory"},
    KVPI_MODEL_NAME(kvpi_mrc_args, model, "or a model of 'kvpager size --list'"),
    KVPI_MODEL_CONFIG(kvpi_mrc_args, model, "or its Hugging Face config.json"),
    KVPI_MODEL_DEVICE(kvpi_mrc_args, model,
                      "an accelerator of 'kvpager size --list': its size is\n"
                      "one of those shown, beside --sizes, too",
                      kvpi_model_args_size_list),
    KVPI_MODEL_TP(kvpi_mrc_args, model,
                  "tensor parallel over N of them (default 1); bytes are\nof one"),
    KVPI_MODEL_DTYPE(kvpi_mrc_args, model, "\n(default: the model's)"),
    KVPI_MODEL_INDEX_DTYPE(kvpi_mrc_args, model),
    KVPI_MODEL_MEMORY(kvpi_mrc_args, model, "of it, for other than weights and KV (default 2GiB)"),
    {"--price", "F",
     "of an accelerator's hour: then what hits save of\n"
     "prefill is shown, by the model of a step",
     kvpi_args_milli, AT(price_milli), 1, 1000000000, .title = "Price"},
    {"--compute-share", "F", "of the peak FLOP/s that is reached (default 0.5)", kvpi_args_milli,
     AT(shares.compute_milli), 1, 1000},
    {"--report", "FILE", "write a page with the curve, one HTML file", kvpi_args_text, AT(report),
     .title = "Output"},
    {"--curve", "FILE", "write every size at which the hits change, as CSV", kvpi_args_text,
     AT(curve)},
    {"--json", NULL, "print one JSON object instead of the table", kvpi_args_yes, AT(json)},
    KVPI_ARGS_HELP,
    KVPI_TRACE_FILE(kvpi_mrc_args, options.trace),
};

/* -------------------------------------------------------------------------------- together */

/* Without the bytes of a token, a size is a number of blocks. */
static int check_sizes(const kvpi_args *args, const char *name, const kvpi_mrc_sizes *sizes)
{
    for (size_t i = 0; i < sizes->n; i++)
        if (sizes->of[i].is_bytes)
            return kvpi_args_wrong(args, "%s in bytes need --kv-bytes-per-token or --model", name);
    return 0;
}

static int check_tiers(const kvpi_args *args, const kvpi_mrc_args *out)
{
    const char *sample = out->options.sample_millionths != 1000000 ? "--sample" : NULL;
    if (out->stores.n == 0 &&
        kvpi_args_needs(args, kvpi_args_first(args, "--record-blocks", "--store-writes"),
                        "--store-sizes") != 0)
        return KVPI_ARGS_WRONG;
    if (out->stores.n > 0 && out->hosts.n == 0)
        return kvpi_args_wrong(args, "--store-sizes needs --host-sizes: loads come to the host");
    return kvpi_args_exclude(args,
                             out->price_milli > 0              ? "--price"
                             : out->hosts.n > 0                ? "--host-sizes"
                             : out->shown.of[KVPI_MRC_LEARNED] ? "--policy learned"
                                                               : NULL,
                             sample);
}

static int check_options(const kvpi_args *args, void *options)
{
    const kvpi_mrc_args *out = options;
    const kvpi_model_args *model = &out->model;
    const char *file = model->config_path != NULL ? "--model-config" : NULL;
    const char *named = model->model_name != NULL ? "--model" : file;
    const char *price = out->price_milli > 0 ? "--price" : NULL;
    const char *bytes = out->kv_bytes_per_token != 0 ? "--kv-bytes-per-token" : NULL;
    if (kvpi_trace_args_check(args, &out->options.trace) != 0 ||
        (named != file && kvpi_args_exclude(args, named, file) != 0) ||
        kvpi_args_exclude(args, bytes, named) != 0)
        return KVPI_ARGS_WRONG;
    if (named == NULL && kvpi_args_needs(args, kvpi_args_first(args, "--device", "--overhead"),
                                         "--model or --model-config") != 0)
        return KVPI_ARGS_WRONG;
    if (model->device == NULL &&
        kvpi_args_needs(args, kvpi_args_first(args, "--weights-dtype", "--overhead"), "--device") !=
            0)
        return KVPI_ARGS_WRONG;
    if (model->device == NULL && kvpi_args_needs(args, price, "--device") != 0)
        return KVPI_ARGS_WRONG;
    if (price == NULL &&
        kvpi_args_needs(args, kvpi_args_first(args, "--compute-share", "--compute-share"),
                        "--price") != 0)
        return KVPI_ARGS_WRONG;
    if (named == NULL && bytes == NULL &&
        (check_sizes(args, "--sizes", &out->sizes) != 0 ||
         check_sizes(args, "--host-sizes", &out->hosts) != 0 ||
         check_sizes(args, "--store-sizes", &out->stores) != 0))
        return KVPI_ARGS_WRONG;
    return check_tiers(args, out);
}

static const kvpi_args_command command = {
    .name = "mrc",
    .about = "Usage: kvpager mrc [OPTIONS] FILE...\n"
             "\n"
             "Say what a cache of every size would hit (a miss-ratio curve), from one pass\n"
             "over a request trace: one request after the other, as 'kvpager replay\n"
             "--sequential' serves them, and with exactly its figures at each size at which no\n"
             "request is rejected. Beside the cache's own replacement (LRU): first in, first\n"
             "out, and the optimum that knows the future (Belady). Hits are of whole blocks.\n"
             "See docs/COMMAND.md.\n"
             "\n"
             "Files and their formats are those of replay.\n",
    .options = options_table,
    .n_options = sizeof options_table / sizeof *options_table,
    .check = check_options};

int kvpi_mrc_args_parse(int argc, char **argv, kvpi_args *args, kvpi_mrc_args *out)
{
    *out = (kvpi_mrc_args){
        .options = {.command = "mrc", .block_tokens = 16, .sample_millionths = 1000000},
        .shown = {.of = {[KVPI_MRC_FIFO] = true, [KVPI_MRC_OPTIMUM] = true}},
        .shares = KVPI_STEP_SHARES,
        .writes = KVPI_MRC_SECOND};
    kvpi_trace_args_init(&out->options.trace);
    kvpi_model_args_init(&out->model, "'kvpager size --list'");
    return kvpi_args_parse(args, &command, argc, argv, out);
}
