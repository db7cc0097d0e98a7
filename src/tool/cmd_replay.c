/* kvpager replay: reads a request trace, replays it, reports.
 *
 * Owns the options and what they mean together; the trace is read in src/trace, the cache is driven
 * in replay.c, the report is told in report*.c.
 */
#include <inttypes.h>
#include <kvpager/kvpager.h>
#include <string.h>

#include "args.h"
#include "progress.h"
#include "replay.h"
#include "report.h"
#include "tool.h"
#include "trace/requests.h"

/* Without --blocks and --memory: room for a quarter of a million tokens, 32 GiB of an 8B model's
 * KV. Enough to show hits, little enough to show evictions. */
#define DEFAULT_CAPACITY_TOKENS 262144u

typedef struct replay_command {
    kvpi_replay_options replay;
    const char *path;
    uint64_t memory_bytes;       /* 0: not given */
    uint64_t kv_bytes_per_token; /* 0: not given */
    bool lenient;
    bool json;
    bool help;
} replay_command;

enum {
    OPT_BLOCK_TOKENS,
    OPT_BLOCKS,
    OPT_MEMORY,
    OPT_KV_BYTES,
    OPT_NO_PREFIX_CACHE,
    OPT_OUTPUT_TOKENS,
    OPT_SEQUENTIAL,
    OPT_LIMIT,
    OPT_TRACE_BLOCK,
    OPT_LENIENT,
    OPT_SEED,
    OPT_RECORD,
    OPT_JSON,
    OPT_HELP
};

static const kvpi_args_option options_table[] = {
    [OPT_BLOCK_TOKENS] = {"--block-tokens", "N",
                          "tokens per block, 1 to 65536 (default 16); must\n"
                          "divide the trace's block",
                          0},
    [OPT_BLOCKS] = {"--blocks", "N", "usable blocks (default: enough for 262144 tokens)", 0},
    [OPT_MEMORY] = {"--memory", "SIZE",
                    "instead of --blocks: KV memory, such as 40GiB or 80G\n"
                    "(K, M, G, T are powers of 1024, kB, MB ... of 1000)",
                    0},
    [OPT_KV_BYTES] = {"--kv-bytes-per-token", "N",
                      "KV bytes of one token: 2 x layers x KV heads x head\n"
                      "size x bytes each; 131072 for Llama 3.1 8B, 16 bits",
                      0},
    [OPT_NO_PREFIX_CACHE] = {"--no-prefix-cache", NULL, "share nothing, for comparison", 0},
    [OPT_OUTPUT_TOKENS] = {"--output-tokens", "on|off",
                           "append generated tokens, one at a time (default on)", 0},
    [OPT_SEQUENTIAL] = {"--sequential", NULL,
                        "one request after the other (default, the only mode)", 0},
    [OPT_LIMIT] = {"--limit", "N", "replay the first N requests only", 0},
    [OPT_TRACE_BLOCK] = {"--trace-block", "N", "tokens per id in the trace (default 512)", 0},
    [OPT_LENIENT] = {"--lenient", NULL,
                     "go on when a request has too few ids (what they do\n"
                     "not cover is unshared) or too many (they are dropped)",
                     0},
    [OPT_SEED] = {"--seed", "S", "other token values with the same sharing (default 0)", 0},
    [OPT_RECORD] = {"--record", "FILE", "record every call on the cache in an operation log", 0},
    [OPT_JSON] = {"--json", NULL, "print one JSON object instead of the table", 0},
    [OPT_HELP] = {"--help", NULL, "print this text", 'h'},
};

#define N_OPTIONS (sizeof options_table / sizeof *options_table)

static void print_help(void)
{
    fputs("Usage: kvpager replay [OPTIONS] FILE\n"
          "\n"
          "Replay a request trace through the cache: requests in timestamp order, each\n"
          "opened, committed, decoded and closed before the next. FILE is '-' for standard\n"
          "input. Formats, told apart by the first line:\n"
          "\n"
          "  Mooncake JSONL   timestamp, input_length, output_length, hash_ids\n"
          "  token JSONL      arrival_time_ns, input_toks, output_toks, input_tok_ids\n"
          "  Azure CSV        TIMESTAMP,ContextTokens,GeneratedTokens   (nothing shared)\n"
          "  BurstGPT CSV     Timestamp,Model,Request tokens,...        (nothing shared)\n"
          "\n"
          "Options:\n",
          stdout);
    kvpi_args_print(options_table, N_OPTIONS);
    fputs("\n"
          "Figures, by their names in --json:\n"
          "  requests          replayed, rejected ones included\n"
          "  rejected          needed more blocks than there are; the cache was left alone\n"
          "  input_tokens      of all requests, rejected ones included\n"
          "  output_tokens     appended\n"
          "  hit_tokens        input tokens that need not be computed; of a request at most\n"
          "                    all but the last, which the model must see\n"
          "  hit_ratio         hit_tokens / input_tokens\n"
          "  blocks_looked_up  full blocks of all prompts, rejected ones included\n"
          "  block_hits        leading blocks of the prompts that were shared\n"
          "  evictions         cached blocks whose content was dropped to make room\n"
          "  peak_held_blocks  most blocks in use at once\n"
          "  wall_seconds      of the replay; reading the file is not in it\n"
          "  ns_per_open, ns_per_commit, ns_per_close   mean of a request's call\n"
          "  ns_per_extend     mean of an output token, its commit included\n",
          stdout);
}

/* ---------------------------------------------------------------------------------- options */

static int apply_number(const kvpi_args *args, int option, const char *value,
                        replay_command *command)
{
    static const uint64_t block_tokens[2] = {1, KVP_BLOCK_TOKENS_MAX};
    static const uint64_t blocks[2] = {1, KVPI_REPLAY_MAX_BLOCKS};
    static const uint64_t trace_block[2] = {1, KVPI_REQUESTS_MAX_TRACE_BLOCK};
    static const uint64_t positive[2] = {1, UINT64_MAX}, any[2] = {0, INT64_MAX};
    kvpi_replay_options *replay = &command->replay;
    uint64_t number = 0;
    int result = 0;
    switch (option) {
    case OPT_BLOCK_TOKENS:
        return kvpi_args_number(args, option, value, block_tokens, &replay->block_tokens);
    case OPT_BLOCKS: return kvpi_args_number(args, option, value, blocks, &replay->blocks);
    case OPT_LIMIT: return kvpi_args_number(args, option, value, positive, &replay->limit);
    case OPT_SEED: return kvpi_args_number(args, option, value, any, &replay->seed);
    case OPT_TRACE_BLOCK:
        result = kvpi_args_number(args, option, value, trace_block, &number);
        replay->trace_block = (int32_t)number;
        return result;
    default: return KVPI_ARGS_WRONG;
    }
}

static int apply_operand(const kvpi_args *args, const char *value, replay_command *command)
{
    if (command->path != NULL)
        return kvpi_args_wrong(args, "'%s' is one file too many, after '%s'", value, command->path);
    command->path = value;
    return 0;
}

static int apply_option(const kvpi_args *args, int option, const char *value,
                        replay_command *command)
{
    static const char *const on_off[] = {"on", "off", NULL};
    size_t choice = 0;
    int result = 0;
    switch (option) {
    case OPT_MEMORY: return kvpi_args_size(args, option, value, &command->memory_bytes);
    case OPT_KV_BYTES: return kvpi_args_size(args, option, value, &command->kv_bytes_per_token);
    case OPT_NO_PREFIX_CACHE: command->replay.prefix_cache = false; return 0;
    case OPT_OUTPUT_TOKENS:
        result = kvpi_args_choice(args, option, value, on_off, &choice);
        command->replay.output = choice == 0;
        return result;
    case OPT_SEQUENTIAL: return 0;
    case OPT_LENIENT: command->lenient = true; return 0;
    case OPT_RECORD: command->replay.record = value; return 0;
    case OPT_JSON: command->json = true; return 0;
    case OPT_HELP: command->help = true; return 0;
    case KVPI_ARGS_OPERAND: return apply_operand(args, value, command);
    default: return apply_number(args, option, value, command);
    }
}

/* --memory and --kv-bytes-per-token give --blocks. */
static int blocks_from_memory(const kvpi_args *args, replay_command *command)
{
    uint64_t block_tokens = command->replay.block_tokens, token = command->kv_bytes_per_token;
    if (command->replay.blocks != 0)
        return kvpi_args_wrong(args, "--blocks and --memory exclude each other");
    if (token == 0)
        return kvpi_args_wrong(args, "--memory needs --kv-bytes-per-token");
    uint64_t blocks = command->memory_bytes / token / block_tokens;
    if (blocks < 1 || blocks > KVPI_REPLAY_MAX_BLOCKS)
        return kvpi_args_wrong(args,
                               "--memory makes %" PRIu64 " blocks of %" PRIu64
                               " tokens with %" PRIu64 " bytes each, expected 1 to %" PRIu64,
                               blocks, block_tokens, token, KVPI_REPLAY_MAX_BLOCKS);
    command->replay.blocks = blocks;
    return 0;
}

static int choose_blocks(const kvpi_args *args, replay_command *command)
{
    if (command->memory_bytes != 0)
        return blocks_from_memory(args, command);
    if (command->replay.blocks == 0)
        command->replay.blocks = DEFAULT_CAPACITY_TOKENS / command->replay.block_tokens;
    uint64_t tokens = command->replay.blocks * command->replay.block_tokens;
    if (command->kv_bytes_per_token > INT64_MAX / tokens)
        return kvpi_args_wrong(args, "--kv-bytes-per-token makes more than 2^63 bytes of KV");
    return 0;
}

static int check_options(const kvpi_args *args, replay_command *command)
{
    if (command->path == NULL)
        return kvpi_args_wrong(args, "no trace file is named");
    return choose_blocks(args, command);
}

static int parse_options(kvpi_args *args, replay_command *command)
{
    const char *value = NULL;
    for (;;) {
        int option = kvpi_args_next(args, &value);
        if (option == KVPI_ARGS_END)
            return check_options(args, command);
        if (apply_option(args, option, value, command) != 0)
            return -1;
        if (command->help)
            return 0;
    }
}

/* ------------------------------------------------------------------------------- the command */

static void on_progress(void *context, uint64_t bytes_read)
{
    kvpi_progress_update(context, bytes_read);
}

static int read_requests(const replay_command *command, kvpi_requests **out)
{
    kvpi_requests_options options;
    kvpi_requests_error error;
    kvpi_progress progress;
    kvpi_progress_start(&progress, "reading bytes", 0);
    kvpi_requests_options_init(&options);
    options.trace_block = command->replay.trace_block;
    options.lenient = command->lenient;
    options.on_progress = on_progress;
    options.progress_context = &progress;
    int result = kvpi_requests_read(command->path, &options, &error, out);
    kvpi_progress_end(&progress);
    return result == 0 ? TOOL_OK : kvpi_tool_fail("replay", "%s", error.text);
}

/* Only content with ids has a block of its own that ours must divide. */
static int check_block_size(const kvpi_args *args, const replay_command *command,
                            const kvpi_requests *requests)
{
    uint64_t block_tokens = command->replay.block_tokens;
    uint64_t trace_block = (uint64_t)command->replay.trace_block;
    if (kvpi_requests_get_format(requests) != KVPI_REQUESTS_MOONCAKE ||
        trace_block % block_tokens == 0)
        return TOOL_OK;
    kvpi_args_wrong(args,
                    "--block-tokens %" PRIu64 " does not divide the %" PRIu64
                    " tokens that an id of the trace stands for (--trace-block)",
                    block_tokens, trace_block);
    return TOOL_USAGE;
}

static int replay_and_report(const replay_command *command, const kvpi_requests *requests)
{
    kvpi_report report = {.path = command->path,
                          .format = kvpi_requests_format_name(kvpi_requests_get_format(requests)),
                          .block_tokens = command->replay.block_tokens,
                          .blocks = command->replay.blocks,
                          .seed = command->replay.seed,
                          .prefix_cache = command->replay.prefix_cache,
                          .output = command->replay.output,
                          .mended = kvpi_requests_mended(requests)};
    report.memory_bytes = report.blocks * report.block_tokens * command->kv_bytes_per_token;
    if (report.mended > 0)
        fprintf(stderr,
                "kvpager replay: %s: %" PRIu64
                " requests had too few or too many ids (--lenient)\n",
                command->path, report.mended);
    int status = kvpi_replay_run(requests, &command->replay, &report);
    if (status != TOOL_OK)
        return status;
    if (!command->json)
        kvpi_report_print(&report, stdout);
    else if (kvpi_report_print_json(&report, stdout) != 0 && !ferror(stdout))
        return kvpi_tool_fail("replay", "out of memory");
    return TOOL_OK;
}

int cmd_replay(int argc, char **argv)
{
    kvpi_args args = {.command = "replay",
                      .argc = argc,
                      .argv = argv,
                      .options = options_table,
                      .n_options = N_OPTIONS,
                      .next = 1};
    replay_command command = {.replay = {.block_tokens = 16,
                                         .limit = UINT64_MAX,
                                         .trace_block = 512,
                                         .prefix_cache = true,
                                         .output = true}};
    kvpi_requests *requests = NULL;
    if (parse_options(&args, &command) != 0)
        return TOOL_USAGE;
    if (command.help) {
        print_help();
        return TOOL_OK;
    }
    int status = read_requests(&command, &requests);
    if (status == TOOL_OK)
        status = check_block_size(&args, &command, requests);
    if (status == TOOL_OK)
        status = replay_and_report(&command, requests);
    kvpi_requests_free(requests);
    return status;
}
