/* kvpager trace replay: runs a log on a new cache; says what was expected and what came. */
#include <inttypes.h>
#include <string.h>

#include "tool/log/trace.h"
#include "tool/progress.h"
#include "tool/tool.h"
#include "oplog/replay.h"

#define COMMAND "trace replay"

struct settings {
    const char *path;
    uint64_t check_level;
    uint64_t max_memory; /* bytes; 0: by the log's */
};

static const kvpi_args_option options[] = {
    {"--check", "LEVEL",
     "audit the cache after every call: 0 not at all (default), 1 sums,\n"
     "2 pool and queue too, 3 every invariant",
     kvpi_args_number, .at = offsetof(struct settings, check_level), 0, 3},
    KVPI_TRACE_MAX_MEMORY(struct settings),
    KVPI_ARGS_HELP,
    {NULL, NULL, "log", kvpi_args_file, .at = offsetof(struct settings, path)},
};

static const kvpi_args_command command = {
    .name = COMMAND,
    .about = "Usage: kvpager trace replay LOG [OPTIONS]\n\n"
             "Makes the log's calls on a new cache of the same configuration. Every id, victim,\n"
             "status and count must come out as recorded; the first that does not is shown.\n"
             "Exit status: 0 all as recorded, 1 not, or the log cannot be read, 2 wrong usage.\n\n",
    .options = options,
    .n_options = sizeof options / sizeof *options,
    .check = kvpi_trace_check_path};

/* Prints the results in a record that the replay made. */
static void print_made(const struct kvpi_oplog_memory *made, uint32_t unit_tokens)
{
    struct kvpi_oplog_decoder decoder = {
        .at = made->bytes, .end = made->bytes + made->n_bytes, .unit_tokens = unit_tokens};
    struct kvpi_oplog_results results;
    kvp_call call;
    if (made->n_bytes == 0)
        fputs("(the cache recorded nothing: the call was refused at sight)", stderr);
    else if (kvpi_oplog_decode_record(&decoder, &call, &results) == KVP_OK)
        kvpi_trace_print_results(stderr, &call, &results, 1);
    else
        fputs("(a record that cannot be read)", stderr);
    kvpi_oplog_decoder_free(&decoder);
}

static int report(const struct kvpi_trace_file *file, const struct kvpi_oplog_replay *replay,
                  const kvp_record *record, kvp_status status)
{
    kvp_config config;
    if (status != KVP_E_MISMATCH && status != KVP_E_CORRUPT)
        return kvpi_trace_damaged(file, COMMAND, status, record->index);
    kvp_oplog_config(file->log, &config);
    if (status == KVP_E_CORRUPT)
        kvpi_tool_fail(COMMAND,
                       "%s: after call #%" PRIu64 " invariant %.8s does not hold, object "
                       "%" PRIu64 ": %s",
                       file->path, record->index, replay->violation.invariant,
                       replay->violation.object,
                       replay->violation.detail != NULL ? replay->violation.detail : "");
    else
        kvpi_tool_fail(COMMAND, "%s: call #%" PRIu64 " gives another result", file->path,
                       record->index);
    fputs("  call:     ", stderr);
    kvpi_trace_print_call(stderr, &record->call);
    fputs("\n  expected: ", stderr);
    kvpi_trace_print_results(stderr, &record->call, kvpi_oplog_results(file->log), 1);
    fputs("\n  got:      ", stderr);
    print_made(&replay->made, config.unit_tokens);
    fputc('\n', stderr);
    return TOOL_FAILED;
}

static int replay_calls(const struct settings *settings, struct kvpi_trace_file *file,
                        struct kvpi_oplog_replay *replay)
{
    kvpi_progress progress;
    kvpi_progress_start(&progress, "replaying, bytes", file->n_bytes);
    for (uint64_t index = 0;; index++) {
        kvp_record record;
        int end;
        kvp_status status = kvp_oplog_next(file->log, &record, &end);
        int read = status == KVP_OK;
        if (read && end == 0)
            status = kvpi_oplog_replay_record(replay, &record, (int)settings->check_level);
        if (status == KVP_OK && end == 0) {
            if (index % 64 == 0)
                kvpi_progress_update(&progress, kvp_oplog_offset(file->log));
            continue;
        }
        kvpi_progress_end(&progress);
        if (!read)
            return kvpi_trace_damaged(file, COMMAND, status, index);
        if (status != KVP_OK)
            return report(file, replay, &record, status);
        printf("%" PRIu64 " calls, every result as recorded\n", index);
        return TOOL_OK;
    }
}

int kvpi_trace_replay(int argc, char **argv)
{
    kvpi_args args;
    struct settings settings = {0};
    struct kvpi_trace_file file;
    struct kvpi_oplog_replay replay;
    kvp_config config;
    int status = kvpi_args_parse(&args, &command, argc, argv, &settings);
    if (status != KVPI_ARGS_GO)
        return status;
    status = kvpi_trace_open(&file, COMMAND, settings.path, settings.max_memory);
    if (status != TOOL_OK)
        return status;
    if (kvpi_trace_check_cache(&file, COMMAND) != TOOL_OK) {
        kvpi_trace_close(&file);
        return TOOL_FAILED;
    }
    kvp_oplog_config(file.log, &config);
    kvp_status created = kvpi_oplog_replay_begin(&replay, &config);
    if (created == KVP_OK) {
        status = replay_calls(&settings, &file, &replay);
        kvpi_oplog_replay_end(&replay);
    } else {
        status = kvpi_tool_fail(COMMAND, "%s: cannot create a cache of the log's configuration: %s",
                                file.path, kvp_status_text(created));
    }
    kvpi_trace_close(&file);
    return status;
}
