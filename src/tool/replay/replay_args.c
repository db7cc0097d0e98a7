/* Owns the options of `kvpager replay`: what there is, what values are allowed, and which of them
 * go together. What they come to, with a model read and blocks counted, is in setup.c.
 */
#include "tool/replay/replay_args.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tool/models/stores.h"
#include "tool/tool.h"

#define DEFAULT_MODEL  "llama-3.1-8b"
#define DEFAULT_DEVICE "h100-80gb"

#define DEFAULT_ROOFLINE_STEP_NS 1000000 /* launching and sampling; measure yours */

/* The first is the nearest. */
static int add_store(const kvpi_args *args, const kvpi_args_option *option, const char *url,
                     void *at)
{
    kvpi_attach_options *out = at;
    (void)option;
    if (out->url == NULL)
        out->url = url;
    else if (out->n_farther < KVP_STORE_STACK_MAX - 1)
        out->farther[out->n_farther++] = url;
    else
        return kvpi_args_wrong(args, "--store is given more than %u times", KVP_STORE_STACK_MAX);
    return 0;
}

static int read_policy(const kvpi_args *args, const kvpi_args_option *option, const char *text,
                       void *at)
{
    (void)option;
    return kvpi_policy_list_read(text, at) == 0
               ? 0
               : kvpi_args_wrong(args, "--policy is '%s', expected lru, learned, or both", text);
}

static int read_retained(const kvpi_args *args, const kvpi_args_option *option, const char *text,
                         void *at)
{
    const bool off = strcmp(text, "off") == 0;
    if (!off && strcmp(text, "prompts") != 0)
        return kvpi_args_number32(args, option, text, at);
    *(uint32_t *)at = off ? 0 : KVP_RETAIN_PROMPTS;
    return 0;
}

/* Their order is that of KVP_EVICTED_... and KVP_PREEMPT_... */
static const char *const kept[] = {"off", "on", "once", NULL};
static const char *const preempt[] = {"recompute", "swap", "cheaper", NULL};
static const char *const writes[] = {"through", "second", NULL};
static const char *const arrivals[] = {"closed", "trace", NULL};
static const char *const on_reject[] = {"go-on", "end", NULL};

#define AT(member) .at = offsetof(kvpi_replay_args, member)

static const kvpi_args_option options_table[] = {
    KVPI_TRACE_OPTIONS(kvpi_replay_args, load.replay.trace),
    {"--skip", "N", "with --sequential: leave out the first N requests", kvpi_args_number,
     AT(load.replay.skip), 0, INT64_MAX},
    {"--speedup", "X", "requests arrive X times as fast (default 1)", kvpi_args_milli,
     AT(load.speedup_milli), 1, UINT64_C(1000000000)},
    {"--arrivals", "HOW",
     "trace (default): at recorded times; closed: a turn so\n"
     "long after the simulated end of what it waits for, as\n"
     "recorded, in traces with sessions",
     kvpi_args_either, AT(load.closed.on), .choices = arrivals, .title = "Sessions"},
    {"--sessions", "N", "sessions that run at once, in the order of the trace", kvpi_args_number,
     AT(load.closed.sessions), 1, 1000000000},
    {"--session-rate", "R", "instead: so many sessions start a second, by --seed", kvpi_args_milli,
     AT(load.closed.rate_milli), 1, UINT64_C(1000000000)},
    {"--think-scale", "X", "times between turns take X times as long (default 1)", kvpi_args_milli,
     AT(load.closed.think_milli), 0, UINT64_C(1000000000)},
    {"--think-cap", "S", "and at most S seconds", kvpi_args_milli, AT(load.closed.cap_milli), 1,
     UINT64_C(1000000000)},
    {"--on-reject", "HOW",
     "end (default): a request that can never be served\n"
     "ends its session; go-on: the next turn comes",
     kvpi_args_either, AT(load.closed.goes_on), .choices = on_reject},
    {"--block-tokens", "N",
     "tokens per block, 1 to 65536 (default 16); must\n"
     "divide the trace's block or be a multiple of it",
     kvpi_args_number, AT(load.replay.block_tokens), 1, KVP_BLOCK_TOKENS_MAX, .title = "Cache"},
    {"--unit-tokens", "N",
     "tokens that are matched as one: divides the block,\n"
     "and equals it by default",
     kvpi_args_number, AT(load.replay.unit_tokens), 1, KVP_BLOCK_TOKENS_MAX},
    {"--blocks", "N",
     "usable blocks, each of a layer group (default: what\n"
     "the model leaves of the accelerator's memory; without\n"
     "one, 262144 tokens)",
     kvpi_args_number, AT(load.replay.blocks), 1, KVPI_REPLAY_MAX_BLOCKS},
    {"--memory", "SIZE",
     "instead of --blocks: KV memory, such as 40GiB or 80G\n"
     "(K, M, G, T are powers of 1024, kB, MB ... of 1000)",
     kvpi_args_size, AT(memory_bytes)},
    {"--kv-bytes-per-token", "N",
     "KV bytes of one token, where no model says so: 2 x\n"
     "layers x KV heads x head size x bytes each",
     kvpi_args_bytes, AT(kv_bytes_per_token)},
    {"--host-blocks", "N",
     "usable blocks of host memory (default none; with a\n"
     "store 4 GiB, at most as many as --blocks)",
     kvpi_args_number, AT(load.replay.host_blocks), 1, KVPI_REPLAY_MAX_BLOCKS},
    {"--host-memory", "SIZE", "instead of --host-blocks", kvpi_args_size, AT(host_memory_bytes)},
    {"--keep-evicted", "off|on|once",
     "copy what is evicted to the host (default on); once:\nmove it", kvpi_args_choice,
     AT(load.replay.keep_evicted), .choices = kept},
    {"--state-slots", "N",
     "states of a model with recurrent state (default: as\n"
     "'kvpager size' shares the memory)",
     kvpi_args_number, AT(load.replay.state_slots), 1, KVPI_REPLAY_MAX_SLOTS},
    {"--host-state-slots", "N",
     "the same on the host, of swapped sequences and\n"
     "loads (default: one for a sequence)",
     kvpi_args_number, AT(load.replay.host_state_slots), 1, KVPI_REPLAY_MAX_SLOTS},
    {"--policy", "LIST",
     "what is evicted from the device: lru (default), or\n"
     "learned (docs/POLICY.md). With both, a replay for\n"
     "each, and a table of what they hit",
     read_policy, AT(policies)},
    {"--store", "URL",
     "write KV to this store, load it, and compare every\n"
     "byte that comes back. KV is made up. For example,\n"
     "'file:PATH?size=10GiB'. Given again: a farther store",
     add_store, AT(load.replay.store)},
    {"--disk", "SIZE[@RATE]",
     "instead: a disk as a model, in simulated time. So\n"
     "many bytes of KV, and so many a second (default 2GB)",
     kvpi_models_store, AT(load.replay.store)},
    {"--remote", "SIZE[@RATE[,TIME]]",
     "the same of a store on another machine (default 1GB),\n"
     "with a latency in ns, us, ms or s (default 1ms)",
     kvpi_models_store, AT(load.replay.store)},
    {"--store-writes", "WHAT",
     "through: all that is computed; second (default): what\n"
     "is hit",
     kvpi_args_either, AT(load.replay.store.through), .choices = writes},
    {"--record-blocks", "N",
     "blocks of a record of the store: 1, 2, 4 ... 64\n"
     "(default: the least with 512 KiB of KV; 1 with\n"
     "recurrent state)",
     kvpi_args_power, AT(load.replay.store.record_blocks), 1, KVP_RECORD_BLOCKS_MAX},
    {"--retain-tokens", "N|prompts|off",
     "window blocks of likely hits stay longer: where\n"
     "prompts end and part, and at multiples of N; of\n"
     "them only the former; none (default: 32 windows)",
     read_retained, AT(load.replay.retain_tokens), 1, INT32_MAX},
    {"--no-prefix-cache", NULL, "share nothing, for comparison", kvpi_args_no,
     AT(load.replay.prefix_cache)},
    {"--reclaim", "N",
     "evict ahead of need, up to N free blocks: for the\n"
     "next step (N at most a 64th of the blocks), or with\n"
     "--sequential before each request (default 0)",
     kvpi_args_number32, AT(load.replay.reclaim), 0, KVPI_REPLAY_MAX_BLOCKS},
    {"--max-running", "N", "requests that run at once (default 256)", kvpi_args_number32,
     AT(load.max_running), 1, 65536, .title = "Scheduler"},
    {"--step-tokens", "N", "tokens computed in a step (default 8192)", kvpi_args_number32,
     AT(load.step_tokens), 1, 1 << 24},
    {"--chunk-tokens", "N",
     "of one prompt in a step; 0: no such limit (default\n"
     "half of --step-tokens)",
     kvpi_args_number32, AT(load.chunk_tokens), 0, 1 << 24},
    {"--watermark", "F",
     "share of the blocks that is kept free when requests\n"
     "are admitted, 0 to 0.9 (default 0.01)",
     kvpi_args_milli, AT(load.watermark_milli), 0, 900},
    {"--preempt", "HOW",
     "recompute (default), swap, or cheaper: whichever the\n"
     "model prices lower",
     kvpi_args_choice, AT(load.preempt), .choices = preempt},
    {"--swap-ahead", NULL, "swap out before blocks run out", kvpi_args_yes, AT(load.swap_ahead)},
    {"--max-passed-over", "N",
     "times that later requests may overtake one that does\n"
     "not fit (default 16; 0: strict order)",
     kvpi_args_number32, AT(load.max_passed_over), 0, 1000000},
    {"--max-tries", "N", "requests that do not fit, tried in a step (default 4)",
     kvpi_args_number32, AT(load.max_tries), 1, 65536},
    {"--wait-for-prefix", NULL, "requests wait while another one computes their prefix",
     kvpi_args_yes, AT(load.wait_for_prefix)},
    {"--model", "NAME",
     "a model of 'kvpager size --list' (default\n"
     "llama-3.1-8b)",
     kvpi_args_text, AT(model.model_name), .title = "Time, by a roofline (the default)"},
    KVPI_MODEL_CONFIG(kvpi_replay_args, model, "or its Hugging Face config.json"),
    KVPI_MODEL_DEVICE(kvpi_replay_args, model,
                      "an accelerator of 'kvpager size --list' (default\n"
                      "h100-80gb)",
                      kvpi_model_args_size_list),
    KVPI_MODEL_TP(kvpi_replay_args, model, "tensor parallel over N of them (default 1)"),
    KVPI_MODEL_DTYPE(kvpi_replay_args, model, "\n(default: the model's)"),
    KVPI_MODEL_INDEX_DTYPE(kvpi_replay_args, model),
    KVPI_MODEL_STATE_DTYPE(kvpi_replay_args, model),
    KVPI_MODEL_MEMORY(kvpi_replay_args, model,
                      "of it, for other than weights and KV (default 2GiB)"),
    {"--compute-share", "F", "of the peak FLOP/s that is reached (default 0.5)", kvpi_args_milli,
     AT(shares.compute_milli), 1, 1000},
    {"--bandwidth-share", "F", "of the peak memory bandwidth (default 0.8)", kvpi_args_milli,
     AT(shares.bandwidth_milli), 1, 1000},
    {"--host-bandwidth", "SIZE", "a second, between host and device (default 50GB)", kvpi_args_size,
     AT(shares.host_bytes_per_second)},
    {"--step-ns", "N",
     "fixed part of a step, with a model or with rates\n"
     "(default 1000000 with a model, else 0)",
     kvpi_args_number, AT(step.step_ns), 0, UINT64_C(1000000000000)},
    {"--prompt-token-ns", "X", "for each prompt token that is computed", kvpi_args_milli,
     AT(step.rates.prompt_token_ps), 0, UINT64_C(1000000000),
     .title = "Time, by plain rates: any of these, no roofline; the others are 0"},
    {"--decode-token-ns", "X", "for each sequence that decodes", kvpi_args_milli,
     AT(step.rates.decode_token_ps), 0, UINT64_C(1000000000)},
    {"--context-token-ns", "X", "for each token that a sequence of the step attends to",
     kvpi_args_milli, AT(step.rates.context_token_ps), 0, UINT64_C(1000000000)},
    {"--copy-token-ns", "X", "for each token copied between host and device", kvpi_args_milli,
     AT(step.rates.copy_token_ps), 0, UINT64_C(1000000000)},
    {"--sequential", NULL,
     "one request after the other instead: hit rates of an\n"
     "unhurried server, no scheduler, no time; --model,\n"
     "--device and what counts their blocks may be given",
     kvpi_args_yes, AT(sequential), .title = "Output"},
    {"--snapshot-in", "FILE",
     "with --sequential: begin with what this snapshot\n"
     "holds, as after a restart (docs/FORMATS.md)",
     kvpi_args_text, AT(load.replay.snapshot_in)},
    {"--snapshot-out", "FILE", "with --sequential: save what is cached in the end", kvpi_args_text,
     AT(load.replay.snapshot_out)},
    {"--record", "FILE", "record every call on the cache in an operation log", kvpi_args_text,
     AT(load.replay.record)},
    {"--report", "FILE", "write a page with charts, one HTML file for any\nbrowser", kvpi_args_text,
     AT(report)},
    {"--why", "FILE",
     "say why prompts were computed: a table, the worst\n"
     "requests, and a JSON line for each request in FILE",
     kvpi_args_text, AT(why)},
    {"--no-measure", NULL, "leave out what was measured: equal input, equal bytes", kvpi_args_no,
     AT(load.measured)},
    {"--json", NULL, "print one JSON object instead of the table", kvpi_args_yes, AT(json)},
    KVPI_ARGS_HELP,
    KVPI_TRACE_FILE(kvpi_replay_args, load.replay.trace),
};

/* -------------------------------------------------------------------------------- together */

static int check_host(const kvpi_args *args, const kvpi_replay_args *out)
{
    static const char *const of_host[] = {"--keep-evicted", "--host-state-slots", NULL};
    const bool host = out->load.replay.host_blocks > 0 || out->host_memory_bytes > 0 ||
                      out->load.replay.store.url != NULL;
    const kvpi_simulate_options *load = &out->load;
    if (load->replay.host_blocks > 0 && out->host_memory_bytes > 0)
        return kvpi_args_exclude(args, "--host-blocks", "--host-memory");
    if (host)
        return 0;
    return kvpi_args_needs(args,
                           load->swap_ahead                         ? "--swap-ahead"
                           : load->preempt != KVP_PREEMPT_RECOMPUTE ? "--preempt swap or cheaper"
                                                                    : kvpi_args_any(args, of_host),
                           "--host-blocks or --host-memory");
}

/* A model says how many bytes a token has, and the accelerator how many blocks there are. */
static int check_model(const kvpi_args *args, kvpi_replay_args *out)
{
    if (out->model.model_name != NULL && out->model.config_path != NULL)
        return kvpi_args_exclude(args, "--model", "--model-config");
    if (kvpi_args_given(args, "--kv-bytes-per-token"))
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
    static const char *const of_device[] = {"--device",      "--weights-dtype", "--weights",
                                            "--utilization", "--overhead",      NULL};
    return check_model(args, out) != 0
               ? KVPI_ARGS_WRONG
               : kvpi_args_exclude(args, kvpi_args_any(args, of_device),
                                   kvpi_args_first(args, "--blocks", "--memory"));
}

/* What is restored has no KV, and a part of a block is no part of a record. */
static int check_store_with(const kvpi_args *args, const kvpi_replay_args *out, const char *store)
{
    const kvpi_replay_options *replay = &out->load.replay;
    const char *other =
        kvpi_args_first(args, strcmp(store, "--store") == 0 ? "--disk" : "--remote", "--remote");
    if (other != NULL && other != store)
        return kvpi_args_exclude(args, store, other);
    if (replay->snapshot_in != NULL)
        return kvpi_args_exclude(args, "--snapshot-in", store);
    if (!replay->prefix_cache)
        return kvpi_args_exclude(args, "--no-prefix-cache", store);
    if (replay->unit_tokens != replay->block_tokens)
        return kvpi_args_exclude(args, "--unit-tokens", store);
    if (replay->keep_evicted == KVP_EVICTED_KEEP_ONCE)
        return kvpi_args_exclude(args, "--keep-evicted once", store);
    if ((!out->step.is_roofline || out->sequential) && !kvpi_replay_args_name_model(out) &&
        out->kv_bytes_per_token == 0)
        return kvpi_args_needs(args, store, "--kv-bytes-per-token or --model");
    return 0;
}

static int check_store(const kvpi_args *args, const kvpi_replay_args *out)
{
    const char *store = kvpi_args_first(args, "--store", "--remote");
    return store != NULL
               ? check_store_with(args, out, store)
               : kvpi_args_needs(args, kvpi_args_first(args, "--store-writes", "--record-blocks"),
                                 "--store, --disk or --remote");
}

/* Options that say nothing when requests are replayed one after the other. What is restored was in
 * no event, and in no log. */
static int check_sequential(const kvpi_args *args, kvpi_replay_args *out)
{
    static const char *const of_time[] = {"--speedup", "--arrivals", "--no-measure", NULL};
    const char *log = kvpi_args_first(args, "--record", "--why");
    const char *option = kvpi_args_first(args, "--max-running", "--wait-for-prefix");
    if (out->load.replay.snapshot_in != NULL && log != NULL)
        return kvpi_args_exclude(args, log, "--snapshot-in");
    if (option == NULL)
        option = kvpi_args_first(args, "--compute-share", "--copy-token-ns");
    if (option == NULL)
        option = kvpi_args_any(args, of_time);
    if (kvpi_args_exclude(args, option, "--sequential") != 0 || check_host(args, out) != 0)
        return KVPI_ARGS_WRONG;
    return kvpi_replay_args_name_model(out)
               ? check_device(args, out)
               : kvpi_args_needs(args, kvpi_args_first(args, "--device", "--overhead"),
                                 "--model or --model-config");
}

/* Rates replace the time of a model; what its blocks and states hold stays. */
static int check_rates(const kvpi_args *args, const kvpi_replay_args *out)
{
    const bool has_model = kvpi_replay_args_name_model(out);
    return kvpi_args_exclude(
        args, kvpi_args_first(args, has_model ? "--compute-share" : "--model", "--host-bandwidth"),
        kvpi_args_first(args, "--prompt-token-ns", "--copy-token-ns"));
}

static int check_roofline(const kvpi_args *args, kvpi_replay_args *out)
{
    if (check_model(args, out) != 0)
        return KVPI_ARGS_WRONG;
    if (!kvpi_replay_args_name_model(out))
        out->model.model_name = DEFAULT_MODEL;
    if (!kvpi_args_given(args, "--step-ns"))
        out->step.step_ns = DEFAULT_ROOFLINE_STEP_NS;
    return 0;
}

static int check_closed(const kvpi_args *args, kvpi_replay_args *out)
{
    kvpi_closed_options *closed = &out->load.closed;
    closed->seed = out->load.replay.trace.key.seed;
    if (!closed->on)
        return kvpi_args_needs(args, kvpi_args_first(args, "--sessions", "--on-reject"),
                               "--arrivals closed");
    if (kvpi_args_given(args, "--speedup"))
        return kvpi_args_exclude(args, "--speedup", "--arrivals closed");
    return closed->sessions > 0 && closed->rate_milli > 0
               ? kvpi_args_exclude(args, "--sessions", "--session-rate")
               : 0;
}

static int check_load(const kvpi_args *args, kvpi_replay_args *out)
{
    static const char *const sequential[] = {"--skip", "--snapshot-in", "--snapshot-out", NULL};
    const char *name = kvpi_args_any(args, sequential);
    kvpi_simulate_options *load = &out->load;
    if (name != NULL)
        return kvpi_args_wrong(args, "%s is for --sequential", name);
    if (load->chunk_tokens == KVP_SCHED_CHUNK_HALF)
        load->chunk_tokens = (load->step_tokens + 1) / 2;
    if (load->max_running > load->step_tokens)
        return kvpi_args_wrong(args,
                               "--step-tokens %" PRIu32 " is less than --max-running %" PRIu32
                               ": each running request decodes one token in a step",
                               load->step_tokens, load->max_running);
    if (check_closed(args, out) != 0 || check_host(args, out) != 0 || check_rates(args, out) != 0)
        return KVPI_ARGS_WRONG;
    if (out->step.is_roofline)
        return check_roofline(args, out);
    return kvpi_replay_args_name_model(out) ? check_device(args, out) : 0;
}

/* What several replays would write to one place. */
static int check_policies(const kvpi_args *args, kvpi_replay_args *out)
{
    static const char *const of_one[] = {"--record",       "--why",   "--snapshot-in",
                                         "--snapshot-out", "--store", NULL};
    const char *name = out->policies.n > 1 ? kvpi_args_any(args, of_one) : NULL;
    out->load.replay.policy = out->policies.of[0];
    return name != NULL ? kvpi_args_wrong(args, "%s is for one --policy", name) : 0;
}

static int check_options(const kvpi_args *args, void *options)
{
    kvpi_replay_args *out = options;
    kvpi_replay_options *replay = &out->load.replay;
    if (kvpi_trace_args_check(args, &replay->trace) != 0)
        return KVPI_ARGS_WRONG;
    if (replay->blocks != 0 && out->memory_bytes != 0)
        return kvpi_args_exclude(args, "--blocks", "--memory");
    if (replay->unit_tokens == 0)
        replay->unit_tokens = replay->block_tokens;
    if (replay->block_tokens % replay->unit_tokens != 0)
        return kvpi_args_wrong(
            args, "--unit-tokens %" PRIu64 " does not divide the block of %" PRIu64 " tokens",
            replay->unit_tokens, replay->block_tokens);
    out->step.is_roofline = kvpi_args_first(args, "--prompt-token-ns", "--copy-token-ns") == NULL;
    if (check_policies(args, out) != 0 || check_store(args, out) != 0)
        return KVPI_ARGS_WRONG;
    return out->sequential ? check_sequential(args, out) : check_load(args, out);
}

static const kvpi_args_command command = {
    .name = "replay",
    .about = "Usage: kvpager replay [OPTIONS] FILE...\n"
             "\n"
             "Replay a request trace under load: requests arrive at their times, the scheduler\n"
             "batches, preempts and shares, and a model of a language model on an accelerator\n"
             "says how long each step takes. Times are simulated, never measured. The model\n"
             "and all figures: docs/COMMAND.md.\n"
             "\n"
             "A FILE is a file, a folder of .json, .jsonl and .csv, or '-' for standard input;\n"
             "each perhaps packed by gzip or zstd. Formats, told apart by the first line:\n"
             "\n"
             "  mooncake   timestamp or delay (ms), input_length, output_length, hash_ids\n"
             "  bailian    chat_id, parent_chat_id, timestamp (s), hash_ids of 16 tokens\n"
             "  weka       a conversation: block_size, requests (t in s, in, out, hash_ids)\n"
             "  tracelab   session_id, round_index, input_tokens_total, timing_events\n"
             "  tokens     arrival_time_ns, input_toks, output_toks, input_tok_ids\n"
             "  azure      TIMESTAMP,ContextTokens,GeneratedTokens      (nothing shared)\n"
             "  burstgpt   Timestamp,Model,Request tokens,...           (nothing shared)\n",
    .options = options_table,
    .n_options = sizeof options_table / sizeof *options_table,
    .more = "\n"
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
    .check = check_options};

static void init(kvpi_replay_args *out)
{
    *out = (kvpi_replay_args){.load = {.replay = {.block_tokens = 16,
                                                  .prefix_cache = true,
                                                  .keep_evicted = KVP_EVICTED_KEEP,
                                                  .n_groups = 1},
                                       .speedup_milli = 1000,
                                       .closed = {.think_milli = 1000},
                                       .watermark_milli = 10,
                                       .max_running = 256,
                                       .step_tokens = 8192,
                                       .chunk_tokens = KVP_SCHED_CHUNK_HALF,
                                       .max_passed_over = 16,
                                       .max_tries = 4,
                                       .measured = true},
                              .shares = KVPI_STEP_SHARES,
                              .policies = {{KVP_POLICY_LRU}, 1}};
    kvpi_trace_args_init(&out->load.replay.trace);
    kvpi_model_args_init(&out->model, "'kvpager size --list'");
}

int kvpi_replay_args_parse(int argc, char **argv, kvpi_args *args, kvpi_replay_args *out)
{
    init(out);
    return kvpi_args_parse(args, &command, argc, argv, out);
}
