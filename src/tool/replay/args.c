/* Owns the options of `kvpager replay`: what there is, what values are allowed, and which of them
 * go together. What they come to, with a model read and blocks counted, is in setup.c.
 */
#include "tool/replay/args.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tool/models/stores.h"
#include "tool/tool.h"

#define DEFAULT_MODEL  "llama-3.1-8b"
#define DEFAULT_DEVICE "h100-80gb"

/* Peaks are not reached. Matrices of large steps and streams of memory come to about these shares;
 * launching and sampling cost something beside. All of it is a choice: measure yours. */
#define DEFAULT_COMPUTE_MILLI    500
#define DEFAULT_BANDWIDTH_MILLI  800
#define DEFAULT_HOST_BANDWIDTH   UINT64_C(50000000000)
#define DEFAULT_ROOFLINE_STEP_NS 1000000

enum {
    /* the trace, after tool/log/args.h's */
    OPT_SKIP = KVPI_TRACE_OPTIONS,
    OPT_SPEEDUP,
    /* the cache */
    OPT_BLOCK_TOKENS,
    OPT_UNIT_TOKENS,
    OPT_BLOCKS,
    OPT_MEMORY,
    OPT_KV_BYTES,
    OPT_HOST_BLOCKS,
    OPT_HOST_MEMORY,
    OPT_KEEP_EVICTED,
    OPT_STATE_SLOTS,
    OPT_HOST_STATE_SLOTS,
    OPT_POLICY,
    OPT_STORE,
    OPT_DISK,
    OPT_REMOTE,
    OPT_STORE_WRITES,
    OPT_RECORD_BLOCKS,
    OPT_NO_PREFIX_CACHE,
    OPT_RECLAIM,
    /* the scheduler */
    OPT_MAX_RUNNING,
    OPT_STEP_TOKENS,
    OPT_CHUNK_TOKENS,
    OPT_WATERMARK,
    OPT_PREEMPT,
    OPT_SWAP_AHEAD,
    OPT_MAX_PASSED_OVER,
    OPT_MAX_TRIES,
    OPT_WAIT_FOR_PREFIX,
    /* the roofline */
    OPT_MODEL,
    OPT_MODEL_CONFIG,
    OPT_DEVICE,
    OPT_TP,
    OPT_DTYPE,
    OPT_STATE_DTYPE,
    OPT_WEIGHTS_DTYPE,
    OPT_UTILIZATION,
    OPT_OVERHEAD,
    OPT_COMPUTE_SHARE,
    OPT_BANDWIDTH_SHARE,
    OPT_HOST_BANDWIDTH,
    OPT_STEP_NS,
    /* plain rates */
    OPT_PROMPT_TOKEN_NS,
    OPT_DECODE_TOKEN_NS,
    OPT_CONTEXT_TOKEN_NS,
    OPT_COPY_TOKEN_NS,
    /* the output */
    OPT_SEQUENTIAL,
    OPT_SNAPSHOT_IN,
    OPT_SNAPSHOT_OUT,
    OPT_RECORD,
    OPT_REPORT,
    OPT_NO_MEASURE,
    OPT_JSON,
    OPT_HELP,
    N_OPTIONS
};

_Static_assert(N_OPTIONS <= 64, "a bit for each in `given`");

static const kvpi_args_option options_table[] = {
    KVPI_TRACE_OPTIONS_TABLE,
    [OPT_SKIP] = {"--skip", "N", "with --sequential: leave out the first N requests", 0},
    [OPT_SPEEDUP] = {"--speedup", "X", "requests arrive X times as fast (default 1)", 0},

    [OPT_BLOCK_TOKENS] = {"--block-tokens", "N",
                          "tokens per block, 1 to 65536 (default 16); must\n"
                          "divide the trace's block",
                          0},
    [OPT_UNIT_TOKENS] = {"--unit-tokens", "N",
                         "tokens that are matched as one: divides the block,\n"
                         "and equals it by default",
                         0},
    [OPT_BLOCKS] = {"--blocks", "N",
                    "usable blocks, each of a layer group (default: what\n"
                    "the model leaves of the accelerator's memory; without\n"
                    "one, 262144 tokens)",
                    0},
    [OPT_MEMORY] = {"--memory", "SIZE",
                    "instead of --blocks: KV memory, such as 40GiB or 80G\n"
                    "(K, M, G, T are powers of 1024, kB, MB ... of 1000)",
                    0},
    [OPT_KV_BYTES] = {"--kv-bytes-per-token", "N",
                      "KV bytes of one token, where no model says so: 2 x\n"
                      "layers x KV heads x head size x bytes each",
                      0},
    [OPT_HOST_BLOCKS] = {"--host-blocks", "N", "usable blocks of host memory (default none)", 0},
    [OPT_HOST_MEMORY] = {"--host-memory", "SIZE", "instead of --host-blocks", 0},
    [OPT_KEEP_EVICTED] = {"--keep-evicted", "off|on|once",
                          "copy what is evicted to the host (default on); once:\nmove it", 0},
    [OPT_STATE_SLOTS] = {"--state-slots", "N",
                         "states of a model with recurrent state (default: as\n"
                         "'kvpager size' shares the memory)",
                         0},
    [OPT_HOST_STATE_SLOTS] = {"--host-state-slots", "N",
                              "the same on the host, of swapped sequences and\n"
                              "loads (default: one for a sequence)",
                              0},
    [OPT_POLICY] = {"--policy", "LIST",
                    "what is evicted from the device: lru (default), or\n"
                    "learned (docs/POLICY.md). With both, a replay for\n"
                    "each, and a table of what they hit",
                    0},
    [OPT_STORE] = {"--store", "URL",
                   "write KV to this store, load it, and compare every\n"
                   "byte that comes back. KV is made up. For example,\n"
                   "file:PATH?size=10GiB. Given again: a farther store",
                   0},
    [OPT_DISK] = {"--disk", "SIZE[@RATE]",
                  "instead: a disk as a model, in simulated time. So\n"
                  "many bytes of KV, and so many a second (default 2GB)",
                  0},
    [OPT_REMOTE] = {"--remote", "SIZE[@RATE[,TIME]]",
                    "the same of a store on another machine (default 1GB),\n"
                    "with a latency in ns, us, ms or s (default 1ms)",
                    0},
    [OPT_STORE_WRITES] = {"--store-writes", "WHAT",
                          "through: all that is computed; second (default): what\n"
                          "is hit",
                          0},
    [OPT_RECORD_BLOCKS] = {"--record-blocks", "N",
                           "blocks of a record of the store: 1, 2, 4 ... 64\n"
                           "(default: the least with 512 KiB of KV; 1 with\n"
                           "recurrent state)",
                           0},
    [OPT_NO_PREFIX_CACHE] = {"--no-prefix-cache", NULL, "share nothing, for comparison", 0},
    [OPT_RECLAIM] = {"--reclaim", "N",
                     "evict ahead of need, up to N free blocks: for the\n"
                     "next step (N at most a 64th of the blocks), or with\n"
                     "--sequential before each request (default 0)",
                     0},

    [OPT_MAX_RUNNING] = {"--max-running", "N", "requests that run at once (default 256)", 0},
    [OPT_STEP_TOKENS] = {"--step-tokens", "N", "tokens computed in a step (default 8192)", 0},
    [OPT_CHUNK_TOKENS] = {"--chunk-tokens", "N",
                          "of one prompt in a step (default 0: no such limit)", 0},
    [OPT_WATERMARK] = {"--watermark", "F",
                       "share of the blocks that is kept free when requests\n"
                       "are admitted, 0 to 0.9 (default 0.01)",
                       0},
    [OPT_PREEMPT] = {"--preempt", "HOW",
                     "recompute (default), swap, or cheaper: whichever the\n"
                     "model prices lower",
                     0},
    [OPT_SWAP_AHEAD] = {"--swap-ahead", NULL, "swap out before blocks run out", 0},
    [OPT_MAX_PASSED_OVER] = {"--max-passed-over", "N",
                             "times that later requests may overtake one that does\n"
                             "not fit (default 16; 0: strict order)",
                             0},
    [OPT_MAX_TRIES] = {"--max-tries", "N", "requests that do not fit, tried in a step (default 4)",
                       0},
    [OPT_WAIT_FOR_PREFIX] = {"--wait-for-prefix", NULL,
                             "requests wait while another one computes their prefix", 0},

    [OPT_MODEL] = {"--model", "NAME",
                   "a model of 'kvpager size --list' (default\n"
                   "llama-3.1-8b)",
                   0},
    [OPT_MODEL_CONFIG] = {"--model-config", "FILE", "or its Hugging Face config.json", 0},
    [OPT_DEVICE] = {"--device", "NAME",
                    "an accelerator of 'kvpager size --list' (default\n"
                    "h100-80gb)",
                    0},
    [OPT_TP] = {"--tp", "N", "tensor parallel over N of them (default 1)", 0},
    [OPT_DTYPE] = {"--dtype", "TYPE", "of KV: bf16, f16, f32, fp8, int8\n(default: the model's)",
                   0},
    [OPT_STATE_DTYPE] = {"--state-dtype", "TYPE",
                         "of the matrices of recurrent states: f32, bf16, f16\n(default: what the "
                         "file says, or f32)",
                         0},
    [OPT_WEIGHTS_DTYPE] = {"--weights-dtype", "TYPE",
                           "bf16, f16, f32, fp8, int8, int4, mxfp4 (default: the\n"
                           "model's)",
                           0},
    [OPT_UTILIZATION] = {"--utilization", "F", "share of the memory that is used (default 0.9)", 0},
    [OPT_OVERHEAD] = {"--overhead", "SIZE", "of it, for other than weights and KV (default 2GiB)",
                      0},
    [OPT_COMPUTE_SHARE] = {"--compute-share", "F",
                           "of the peak FLOP/s that is reached (default 0.5)", 0},
    [OPT_BANDWIDTH_SHARE] = {"--bandwidth-share", "F", "of the peak memory bandwidth (default 0.8)",
                             0},
    [OPT_HOST_BANDWIDTH] = {"--host-bandwidth", "SIZE",
                            "a second, between host and device (default 50GB)", 0},
    [OPT_STEP_NS] = {"--step-ns", "N",
                     "fixed part of a step, with a model or with rates\n"
                     "(default 1000000 with a model, else 0)",
                     0},

    [OPT_PROMPT_TOKEN_NS] = {"--prompt-token-ns", "X", "for each prompt token that is computed", 0},
    [OPT_DECODE_TOKEN_NS] = {"--decode-token-ns", "X", "for each sequence that decodes", 0},
    [OPT_CONTEXT_TOKEN_NS] = {"--context-token-ns", "X",
                              "for each token that a sequence of the step attends to", 0},
    [OPT_COPY_TOKEN_NS] = {"--copy-token-ns", "X", "for each token copied between host and device",
                           0},

    [OPT_SEQUENTIAL] = {"--sequential", NULL,
                        "one request after the other instead: hit rates of an\n"
                        "unhurried server, no scheduler, no time; --model,\n"
                        "--device and what counts their blocks may be given",
                        0},
    [OPT_SNAPSHOT_IN] = {"--snapshot-in", "FILE",
                         "with --sequential: begin with what this snapshot\n"
                         "holds, as after a restart (docs/SNAPSHOT.md)",
                         0},
    [OPT_SNAPSHOT_OUT] = {"--snapshot-out", "FILE",
                          "with --sequential: save what is cached in the end", 0},
    [OPT_RECORD] = {"--record", "FILE", "record every call on the cache in an operation log", 0},
    [OPT_REPORT] = {"--report", "FILE", "write a page with charts, one HTML file for any\nbrowser",
                    0},
    [OPT_NO_MEASURE] = {"--no-measure", NULL,
                        "leave out what was measured: equal input, equal bytes", 0},
    [OPT_JSON] = {"--json", NULL, "print one JSON object instead of the table", 0},
    [OPT_HELP] = {"--help", NULL, "print this text", 'h'},
};

/* ------------------------------------------------------------------------------------ the help */

static void print_group(const char *title, int first, int end)
{
    printf("\n%s:\n", title);
    kvpi_args_print(options_table + first, (size_t)(end - first));
}

static void print_sequential_help(void)
{
    fputs("\n"
          "Figures of --sequential, by their names in --json:\n"
          "  skipped           requests left out before them\n"
          "  saved_blocks, restored_blocks   in the snapshot, and of them restored\n"
          "  requests          replayed, rejected ones included\n"
          "  rejected          needed more blocks than there are; the cache was left alone\n"
          "  input_tokens      of all requests, rejected ones included\n"
          "  output_tokens     appended\n"
          "  hit_tokens        input tokens that need not be computed; of a request at most\n"
          "                    all but the last, which the model must see\n"
          "  host_hit_tokens   of these, copied from the host, in any layer group\n"
          "  hit_ratio         hit_tokens / input_tokens\n"
          "  blocks_looked_up  full blocks of all prompts, rejected ones included\n"
          "  block_hits        leading blocks of the prompts that were hit\n"
          "  evictions         cached blocks whose content was dropped to make room\n"
          "  host_evictions    the same of the host tier\n"
          "  ended             hits by what ended them: all was there (end), the next unit\n"
          "                    is not known (miss), has no KV (no_kv), no state (states)\n"
          "  state_missed_tokens   known tokens behind hits that a missing state ended\n"
          "  checkpoints_made, _skipped, _evicted   states kept, without a slot, gone again\n"
          "  peak_held_blocks  most blocks in use at once\n"
          "  wall_seconds      of the replay; reading the file is not in it\n"
          "  ns_per_open, ns_per_commit, ns_per_close   mean of a request's call\n"
          "  ns_per_extend     mean of an output token, its commit included\n",
          stdout);
}

void kvpi_replay_args_help(void)
{
    fputs("Usage: kvpager replay [OPTIONS] FILE\n"
          "\n"
          "Replay a request trace under load: requests arrive at their times, the scheduler\n"
          "batches, preempts and shares, and a model of a language model on an accelerator\n"
          "says how long each step takes. Times are simulated, never measured. The model:\n"
          "docs/REPLAY.md; all figures: docs/REPORT.md.\n"
          "\n"
          "FILE is '-' for standard input. Formats, told apart by the first line:\n"
          "\n"
          "  Mooncake JSONL   timestamp, input_length, output_length, hash_ids\n"
          "  token JSONL      arrival_time_ns, input_toks, output_toks, input_tok_ids\n"
          "  Azure CSV        TIMESTAMP,ContextTokens,GeneratedTokens   (nothing shared)\n"
          "  BurstGPT CSV     Timestamp,Model,Request tokens,...        (nothing shared)\n",
          stdout);
    print_group("Trace", 0, OPT_BLOCK_TOKENS);
    print_group("Cache", OPT_BLOCK_TOKENS, OPT_MAX_RUNNING);
    print_group("Scheduler", OPT_MAX_RUNNING, OPT_MODEL);
    print_group("Time, by a roofline (the default)", OPT_MODEL, OPT_PROMPT_TOKEN_NS);
    print_group("Time, by plain rates: any of these, no roofline; the others are 0",
                OPT_PROMPT_TOKEN_NS, OPT_SEQUENTIAL);
    print_group("Output", OPT_SEQUENTIAL, N_OPTIONS);
    print_sequential_help();
}

/* ------------------------------------------------------------------------------ single options */

static int apply_number32(const kvpi_args *args, int option, const char *value,
                          const uint64_t range[2], uint32_t *out)
{
    uint64_t number = 0;
    if (kvpi_args_number(args, option, value, range, &number) != 0)
        return KVPI_ARGS_WRONG;
    *out = (uint32_t)number;
    return 0;
}

static int apply_skip(const kvpi_args *args, const char *value, kvpi_replay_args *out)
{
    static const uint64_t range[2] = {0, INT64_MAX};
    return kvpi_args_number(args, OPT_SKIP, value, range, &out->load.replay.skip);
}

static int apply_speedup(const kvpi_args *args, const char *value, kvpi_replay_args *out)
{
    static const uint64_t range[2] = {1, UINT64_C(1000000000)};
    return kvpi_args_milli(args, OPT_SPEEDUP, value, range, &out->load.speedup_milli);
}

static int apply_store(const kvpi_args *args, int option, const char *value,
                       kvpi_attach_options *out)
{
    static const char *const writes[] = {"through", "second", NULL};
    static const uint64_t blocks[2] = {1, KVP_RECORD_BLOCKS_MAX};
    size_t choice = 0;
    if (option == OPT_RECORD_BLOCKS) {
        if (kvpi_args_number(args, option, value, blocks, &out->record_blocks) != 0)
            return KVPI_ARGS_WRONG;
        return (out->record_blocks & (out->record_blocks - 1)) == 0
                   ? 0
                   : kvpi_args_wrong(args, "--record-blocks is '%s', expected a power of two",
                                     value);
    }
    if (kvpi_args_choice(args, option, value, writes, &choice) != 0)
        return KVPI_ARGS_WRONG;
    out->through = choice == 0;
    return 0;
}

/* The first is the nearest. */
static int add_store(const kvpi_args *args, const char *url, kvpi_attach_options *out)
{
    if (out->url == NULL)
        out->url = url;
    else if (out->n_farther < KVP_STORE_STACK_MAX - 1)
        out->farther[out->n_farther++] = url;
    else
        return kvpi_args_wrong(args, "--store is given more than %u times", KVP_STORE_STACK_MAX);
    return 0;
}

/* Which of the names: their order is that of KVP_EVICTED_... and KVP_PREEMPT_... */
static int apply_choice(const kvpi_args *args, int option, const char *value,
                        const char *const *names, uint32_t *out)
{
    size_t choice = *out;
    const int status = kvpi_args_choice(args, option, value, names, &choice);
    *out = (uint32_t)choice;
    return status;
}

static int apply_policy(const kvpi_args *args, const char *value, kvpi_replay_args *out)
{
    if (kvpi_policy_list_read(value, &out->policies) != 0)
        return kvpi_args_wrong(args, "--policy is '%s', expected lru, learned, or both", value);
    out->load.replay.policy = out->policies.of[0];
    return 0;
}

static int apply_cache(const kvpi_args *args, int option, const char *value, kvpi_replay_args *out)
{
    static const uint64_t block_tokens[2] = {1, KVP_BLOCK_TOKENS_MAX};
    static const uint64_t blocks[2] = {1, KVPI_REPLAY_MAX_BLOCKS};
    static const uint64_t slots[2] = {1, KVPI_REPLAY_MAX_SLOTS};
    static const uint64_t reclaimed[2] = {0, KVPI_REPLAY_MAX_BLOCKS};
    static const char *const kept[] = {"off", "on", "once", NULL};
    kvpi_replay_options *replay = &out->load.replay;
    switch (option) {
    case OPT_BLOCK_TOKENS:
        return kvpi_args_number(args, option, value, block_tokens, &replay->block_tokens);
    case OPT_UNIT_TOKENS:
        return kvpi_args_number(args, option, value, block_tokens, &replay->unit_tokens);
    case OPT_BLOCKS: return kvpi_args_number(args, option, value, blocks, &replay->blocks);
    case OPT_MEMORY: return kvpi_args_size(args, option, value, &out->memory_bytes);
    case OPT_KV_BYTES: return kvpi_args_size(args, option, value, &out->kv_bytes_per_token);
    case OPT_HOST_BLOCKS:
        return kvpi_args_number(args, option, value, blocks, &replay->host_blocks);
    case OPT_HOST_MEMORY: return kvpi_args_size(args, option, value, &out->host_memory_bytes);
    case OPT_KEEP_EVICTED: return apply_choice(args, option, value, kept, &replay->keep_evicted);
    case OPT_STATE_SLOTS: return kvpi_args_number(args, option, value, slots, &replay->state_slots);
    case OPT_HOST_STATE_SLOTS:
        return kvpi_args_number(args, option, value, slots, &replay->host_state_slots);
    case OPT_POLICY: return apply_policy(args, value, out);
    case OPT_STORE: return add_store(args, value, &replay->store);
    case OPT_DISK:
    case OPT_REMOTE:
        return kvpi_models_store(args, option, option == OPT_REMOTE, value, &replay->store);
    case OPT_STORE_WRITES:
    case OPT_RECORD_BLOCKS: return apply_store(args, option, value, &replay->store);
    case OPT_NO_PREFIX_CACHE: replay->prefix_cache = false; return 0;
    case OPT_RECLAIM: return apply_number32(args, option, value, reclaimed, &replay->reclaim);
    default: return KVPI_ARGS_WRONG;
    }
}

static int apply_sched(const kvpi_args *args, int option, const char *value, kvpi_replay_args *out)
{
    static const uint64_t running[2] = {1, 65536}, step[2] = {1, 1 << 24};
    static const uint64_t chunk[2] = {0, 1 << 24}, watermark[2] = {0, 900};
    static const uint64_t passed[2] = {0, 1000000}, tries[2] = {1, 65536};
    static const char *const preempt[] = {"recompute", "swap", "cheaper", NULL};
    kvpi_simulate_options *load = &out->load;
    switch (option) {
    case OPT_MAX_RUNNING: return apply_number32(args, option, value, running, &load->max_running);
    case OPT_STEP_TOKENS: return apply_number32(args, option, value, step, &load->step_tokens);
    case OPT_CHUNK_TOKENS: return apply_number32(args, option, value, chunk, &load->chunk_tokens);
    case OPT_WATERMARK:
        return kvpi_args_milli(args, option, value, watermark, &load->watermark_milli);
    case OPT_PREEMPT: return apply_choice(args, option, value, preempt, &load->preempt);
    case OPT_SWAP_AHEAD: load->swap_ahead = true; return 0;
    case OPT_MAX_PASSED_OVER:
        return apply_number32(args, option, value, passed, &load->max_passed_over);
    case OPT_MAX_TRIES: return apply_number32(args, option, value, tries, &load->max_tries);
    case OPT_WAIT_FOR_PREFIX: load->wait_for_prefix = true; return 0;
    default: return KVPI_ARGS_WRONG;
    }
}

static int apply_device(const kvpi_args *args, const char *value, kvpi_replay_args *out)
{
    out->model.device = kvpi_devices_find(value);
    if (out->model.device == NULL)
        return kvpi_args_wrong(args, "--device is '%s', which is not in 'kvpager size --list'",
                               value);
    return 0;
}

static int apply_roofline(const kvpi_args *args, int option, const char *value,
                          kvpi_replay_args *out)
{
    static const uint64_t share[2] = {1, 1000}, step_ns[2] = {0, UINT64_C(1000000000000)};
    switch (option) {
    case OPT_MODEL: out->model.model_name = value; return 0;
    case OPT_MODEL_CONFIG: out->model.config_path = value; return 0;
    case OPT_DEVICE: return apply_device(args, value, out);
    case OPT_TP: return kvpi_model_args_tp(args, option, value, &out->model);
    case OPT_DTYPE: return kvpi_model_args_dtype(args, option, value, true, &out->model);
    case OPT_STATE_DTYPE: return kvpi_model_args_state_dtype(args, option, value, &out->model);
    case OPT_WEIGHTS_DTYPE: return kvpi_model_args_dtype(args, option, value, false, &out->model);
    case OPT_UTILIZATION: return kvpi_model_args_utilization(args, option, value, &out->model);
    case OPT_OVERHEAD: return kvpi_model_args_overhead(args, option, value, &out->model);
    case OPT_COMPUTE_SHARE:
        return kvpi_args_milli(args, option, value, share, &out->shares.compute_milli);
    case OPT_BANDWIDTH_SHARE:
        return kvpi_args_milli(args, option, value, share, &out->shares.bandwidth_milli);
    case OPT_HOST_BANDWIDTH:
        return kvpi_args_size(args, option, value, &out->shares.host_bytes_per_second);
    case OPT_STEP_NS: return kvpi_args_number(args, option, value, step_ns, &out->step.step_ns);
    default: return KVPI_ARGS_WRONG;
    }
}

static int apply_rate(const kvpi_args *args, int option, const char *value, kvpi_replay_args *out)
{
    static const uint64_t rate[2] = {0, UINT64_C(1000000000)};
    kvpi_step_rates *rates = &out->step.rates;
    out->step.is_roofline = false;
    switch (option) {
    case OPT_PROMPT_TOKEN_NS:
        return kvpi_args_milli(args, option, value, rate, &rates->prompt_token_ps);
    case OPT_DECODE_TOKEN_NS:
        return kvpi_args_milli(args, option, value, rate, &rates->decode_token_ps);
    case OPT_CONTEXT_TOKEN_NS:
        return kvpi_args_milli(args, option, value, rate, &rates->context_token_ps);
    case OPT_COPY_TOKEN_NS:
        return kvpi_args_milli(args, option, value, rate, &rates->copy_token_ps);
    default: return KVPI_ARGS_WRONG;
    }
}

static int apply_output(int option, const char *value, kvpi_replay_args *out)
{
    switch (option) {
    case OPT_SEQUENTIAL: out->sequential = true; return 0;
    case OPT_SNAPSHOT_IN: out->load.replay.snapshot_in = value; return 0;
    case OPT_SNAPSHOT_OUT: out->load.replay.snapshot_out = value; return 0;
    case OPT_RECORD: out->load.replay.record = value; return 0;
    case OPT_REPORT: out->report = value; return 0;
    case OPT_NO_MEASURE: out->load.measured = false; return 0;
    case OPT_JSON: out->json = true; return 0;
    case OPT_HELP: out->help = true; return 0;
    default: return KVPI_ARGS_WRONG;
    }
}

static bool is_given(const kvpi_replay_args *out, int option)
{
    return (out->given >> option & 1) != 0;
}

static int apply_option(const kvpi_args *args, int option, const char *value, kvpi_replay_args *out)
{
    if ((option == OPT_DISK || option == OPT_REMOTE) && is_given(out, option))
        return kvpi_args_wrong(args, "%s is given twice", options_table[option].name);
    if (option >= 0)
        out->given |= UINT64_C(1) << option;
    if (option < KVPI_TRACE_OPTIONS)
        return kvpi_trace_args_apply(args, option, value, &out->load.replay.trace);
    if (option == OPT_SKIP)
        return apply_skip(args, value, out);
    if (option == OPT_SPEEDUP)
        return apply_speedup(args, value, out);
    if (option < OPT_MAX_RUNNING)
        return apply_cache(args, option, value, out);
    if (option < OPT_MODEL)
        return apply_sched(args, option, value, out);
    if (option < OPT_PROMPT_TOKEN_NS)
        return apply_roofline(args, option, value, out);
    if (option < OPT_SEQUENTIAL)
        return apply_rate(args, option, value, out);
    return apply_output(option, value, out);
}

/* -------------------------------------------------------------------------------- together */

/* The first of options first..end-1 that was given, or -1. */
static int first_given(const kvpi_replay_args *out, int first, int end)
{
    for (int option = first; option < end; option++)
        if (is_given(out, option))
            return option;
    return -1;
}

static int exclude(const kvpi_args *args, int a, int b)
{
    return kvpi_args_wrong(args, "%s and %s exclude each other", options_table[a].name,
                           options_table[b].name);
}

static int check_host(const kvpi_args *args, const kvpi_replay_args *out)
{
    bool host = out->load.replay.host_blocks > 0 || out->host_memory_bytes > 0;
    const kvpi_simulate_options *load = &out->load;
    if (load->replay.host_blocks > 0 && out->host_memory_bytes > 0)
        return exclude(args, OPT_HOST_BLOCKS, OPT_HOST_MEMORY);
    if ((load->preempt != KVP_PREEMPT_RECOMPUTE || load->swap_ahead) && !host)
        return kvpi_args_wrong(args, "%s needs --host-blocks or --host-memory",
                               load->swap_ahead ? "--swap-ahead" : "--preempt swap or cheaper");
    static const int of_host[] = {OPT_KEEP_EVICTED, OPT_HOST_STATE_SLOTS};
    for (size_t i = 0; i < sizeof of_host / sizeof *of_host && !host; i++)
        if (is_given(out, of_host[i]))
            return kvpi_args_wrong(args, "%s needs --host-blocks or --host-memory",
                                   options_table[of_host[i]].name);
    return 0;
}

/* A model says how many bytes a token has, and the accelerator how many blocks there are. */
static int check_model(const kvpi_args *args, kvpi_replay_args *out)
{
    if (is_given(out, OPT_MODEL) && is_given(out, OPT_MODEL_CONFIG))
        return exclude(args, OPT_MODEL, OPT_MODEL_CONFIG);
    if (is_given(out, OPT_KV_BYTES))
        return kvpi_args_wrong(args, "--kv-bytes-per-token is for --sequential and plain rates, "
                                     "without a model: the model says how many they are");
    out->has_model = true;
    if (out->model.device == NULL)
        out->model.device = kvpi_devices_find(DEFAULT_DEVICE);
    out->model.size.memory_bytes = out->model.device->memory_bytes;
    return 0;
}

/* One after the other, or with rates, an accelerator is nothing but a number of blocks. */
static int check_device(const kvpi_args *args, kvpi_replay_args *out)
{
    static const int of_device[] = {OPT_DEVICE, OPT_WEIGHTS_DTYPE, OPT_UTILIZATION, OPT_OVERHEAD};
    int size = first_given(out, OPT_BLOCKS, OPT_KV_BYTES), status = check_model(args, out);
    for (size_t i = 0; status == 0 && size >= 0 && i < sizeof of_device / sizeof *of_device; i++)
        if (is_given(out, of_device[i]))
            return exclude(args, of_device[i], size);
    return status;
}

/* What is restored has no KV, and a part of a block is no part of a record. */
static int check_store_with(const kvpi_args *args, const kvpi_replay_args *out, int store)
{
    const kvpi_replay_options *replay = &out->load.replay;
    const char *name = options_table[store].name;
    int other = first_given(out, store + 1, OPT_STORE_WRITES);
    if (other >= 0)
        return exclude(args, store, other);
    if (is_given(out, OPT_SNAPSHOT_IN))
        return exclude(args, OPT_SNAPSHOT_IN, store);
    if (!replay->prefix_cache)
        return exclude(args, OPT_NO_PREFIX_CACHE, store);
    if (replay->unit_tokens != replay->block_tokens)
        return exclude(args, OPT_UNIT_TOKENS, store);
    if (replay->host_blocks == 0 && out->host_memory_bytes == 0)
        return kvpi_args_wrong(args, "%s needs --host-blocks or --host-memory", name);
    if ((!out->step.is_roofline || out->sequential) && !kvpi_replay_args_name_model(out) &&
        out->kv_bytes_per_token == 0)
        return kvpi_args_wrong(args, "%s needs --kv-bytes-per-token or --model", name);
    return 0;
}

static int check_store(const kvpi_args *args, const kvpi_replay_args *out)
{
    int store = first_given(out, OPT_STORE, OPT_STORE_WRITES);
    int option = first_given(out, OPT_STORE_WRITES, OPT_NO_PREFIX_CACHE);
    if (store >= 0)
        return check_store_with(args, out, store);
    return option < 0 ? 0
                      : kvpi_args_wrong(args, "%s needs --store, --disk or --remote",
                                        options_table[option].name);
}

/* Options that say nothing when requests are replayed one after the other. What is restored was in
 * no event, and in no log. */
static int check_sequential(const kvpi_args *args, kvpi_replay_args *out)
{
    int option = first_given(out, OPT_MAX_RUNNING, OPT_MODEL);
    int log = first_given(out, OPT_RECORD, OPT_NO_MEASURE);
    if (is_given(out, OPT_SNAPSHOT_IN) && log >= 0)
        return exclude(args, log, OPT_SNAPSHOT_IN);
    if (option < 0)
        option = first_given(out, OPT_COMPUTE_SHARE, OPT_SEQUENTIAL);
    if (option < 0 && is_given(out, OPT_SPEEDUP))
        option = OPT_SPEEDUP;
    if (option < 0 && is_given(out, OPT_NO_MEASURE))
        option = OPT_NO_MEASURE;
    if (option >= 0)
        return exclude(args, option, OPT_SEQUENTIAL);
    if (check_host(args, out) != 0)
        return KVPI_ARGS_WRONG;
    if (!kvpi_replay_args_name_model(out)) {
        option = first_given(out, OPT_DEVICE, OPT_COMPUTE_SHARE);
        return option < 0 ? 0
                          : kvpi_args_wrong(args, "%s needs --model or --model-config",
                                            options_table[option].name);
    }
    return check_device(args, out);
}

/* Rates replace the time of a model; what its blocks and states hold stays. */
static int check_rates(const kvpi_args *args, const kvpi_replay_args *out)
{
    int rate = first_given(out, OPT_PROMPT_TOKEN_NS, OPT_SEQUENTIAL);
    int time = first_given(out, kvpi_replay_args_name_model(out) ? OPT_COMPUTE_SHARE : OPT_MODEL,
                           OPT_STEP_NS);
    return rate >= 0 && time >= 0 ? exclude(args, time, rate) : 0;
}

static int check_roofline(const kvpi_args *args, kvpi_replay_args *out)
{
    if (check_model(args, out) != 0)
        return KVPI_ARGS_WRONG;
    if (!kvpi_replay_args_name_model(out))
        out->model.model_name = DEFAULT_MODEL;
    if (!is_given(out, OPT_STEP_NS))
        out->step.step_ns = DEFAULT_ROOFLINE_STEP_NS;
    return 0;
}

static int check_load(const kvpi_args *args, kvpi_replay_args *out)
{
    static const int sequential[] = {OPT_SKIP, OPT_SNAPSHOT_IN, OPT_SNAPSHOT_OUT};
    const kvpi_simulate_options *load = &out->load;
    for (size_t i = 0; i < sizeof sequential / sizeof *sequential; i++)
        if (is_given(out, sequential[i]))
            return kvpi_args_wrong(args, "%s is for --sequential",
                                   options_table[sequential[i]].name);
    if (load->max_running > load->step_tokens)
        return kvpi_args_wrong(args,
                               "--step-tokens %" PRIu32 " is less than --max-running %" PRIu32
                               ": each running request decodes one token in a step",
                               load->step_tokens, load->max_running);
    if (check_host(args, out) != 0 || check_rates(args, out) != 0)
        return KVPI_ARGS_WRONG;
    if (out->step.is_roofline)
        return check_roofline(args, out);
    return kvpi_replay_args_name_model(out) ? check_device(args, out) : 0;
}

/* What several replays would write to one place. */
static int check_policies(const kvpi_args *args, const kvpi_replay_args *out)
{
    static const int of_one[] = {OPT_REPORT, OPT_RECORD, OPT_SNAPSHOT_IN, OPT_SNAPSHOT_OUT,
                                 OPT_STORE};
    for (size_t i = 0; i < sizeof of_one / sizeof *of_one && out->policies.n > 1; i++)
        if (is_given(out, of_one[i]))
            return kvpi_args_wrong(args, "%s is for one --policy", options_table[of_one[i]].name);
    return 0;
}

static int check_options(const kvpi_args *args, kvpi_replay_args *out)
{
    if (kvpi_trace_args_check(args, &out->load.replay.trace) != 0)
        return KVPI_ARGS_WRONG;
    if (out->load.replay.blocks != 0 && out->memory_bytes != 0)
        return exclude(args, OPT_BLOCKS, OPT_MEMORY);
    kvpi_replay_options *replay = &out->load.replay;
    if (replay->unit_tokens == 0)
        replay->unit_tokens = replay->block_tokens;
    if (replay->block_tokens % replay->unit_tokens != 0)
        return kvpi_args_wrong(
            args, "--unit-tokens %" PRIu64 " does not divide the block of %" PRIu64 " tokens",
            replay->unit_tokens, replay->block_tokens);
    if (check_policies(args, out) != 0 || check_store(args, out) != 0)
        return KVPI_ARGS_WRONG;
    return out->sequential ? check_sequential(args, out) : check_load(args, out);
}

static void init(kvpi_replay_args *out)
{
    *out = (kvpi_replay_args){
        .load = {.replay = {.block_tokens = 16,
                            .prefix_cache = true,
                            .keep_evicted = KVP_EVICTED_KEEP,
                            .n_groups = 1},
                 .speedup_milli = 1000,
                 .watermark_milli = 10,
                 .max_running = 256,
                 .step_tokens = 8192,
                 .max_passed_over = 16,
                 .max_tries = 4,
                 .measured = true},
        .shares = {DEFAULT_COMPUTE_MILLI, DEFAULT_BANDWIDTH_MILLI, DEFAULT_HOST_BANDWIDTH},
        .step = {.is_roofline = true},
        .policies = {{KVP_POLICY_LRU}, 1}};
    kvpi_trace_args_init(&out->load.replay.trace);
    kvpi_model_args_init(&out->model, "'kvpager size --list'", false);
}

int kvpi_replay_args_parse(int argc, char **argv, kvpi_args *args, kvpi_replay_args *out)
{
    const char *value = NULL;
    *args = (kvpi_args){.command = "replay",
                        .argc = argc,
                        .argv = argv,
                        .options = options_table,
                        .n_options = N_OPTIONS,
                        .next = 1};
    init(out);
    for (;;) {
        int option = kvpi_args_next(args, &value);
        if (option == KVPI_ARGS_END)
            return check_options(args, out);
        if (apply_option(args, option, value, out) != 0)
            return -1;
        if (out->help)
            return 0;
    }
}
