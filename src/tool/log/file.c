/* file: a log, read from a file into memory. */
#include "tool/log/trace.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tool/input/escape.h"
#include "tool/input/input.h"
#include "tool/text.h"
#include "tool/tool.h"

/* Reads to the end of the stream. Gives NULL when the machine refused, errno says why, or when the
 * budget is over. */
static uint8_t *read_all(FILE *stream, kvpi_budget *budget, size_t *n_bytes)
{
    size_t capacity = (size_t)1 << 16, n = 0;
    uint8_t *bytes = malloc(capacity);
    while (bytes != NULL) {
        const size_t got = fread(bytes + n, 1, capacity - n, stream);
        n += got;
        budget->read += got;
        if (n < capacity)
            break;
        uint8_t *grown = capacity > SIZE_MAX / 2
                             ? NULL
                             : kvpi_budget_realloc(budget, bytes, capacity, 2 * capacity);
        if (grown == NULL)
            free(bytes);
        bytes = grown;
        capacity *= 2;
    }
    if (bytes != NULL && ferror(stream)) {
        free(bytes);
        return NULL;
    }
    *n_bytes = n;
    return bytes;
}

int kvpi_trace_check_path(const kvpi_args *args, void *options)
{
    const char *const *path = options;
    return *path == NULL ? kvpi_args_wrong(args, "which log?") : 0;
}

static int refuse_memory(const struct kvpi_trace_file *file, const char *command, const char *what)
{
    const kvpi_budget *budget = &file->budget;
    return kvpi_tool_fail(command, "%s: %s needs more than %s of memory%s (--max-memory)",
                          file->path, what, kvpi_text_bytes((double)kvpi_budget_limit(budget)).of,
                          budget->max == 0 ? ", which is 64 MiB and 16 times its bytes" : "");
}

/* A file with holes is not read for more than its budget, and not at all if it cannot be held. */
static int read_file(struct kvpi_trace_file *file, const char *command)
{
    kvpi_input input;
    if (!kvpi_input_open(&input, file->path, true))
        return kvpi_tool_fail(command, "%s: %s", file->path, input.why);
    kvpi_budget holes = {.max = file->budget.max, .read = input.data_bytes};
    if (input.is_regular && !kvpi_budget_take(&holes, input.n_bytes)) {
        kvpi_input_close(&input);
        file->budget = holes;
        return refuse_memory(file, command, "its length, most of which are holes,");
    }
    errno = 0;
    file->bytes = read_all(input.file, &file->budget, &file->n_bytes);
    const int error = errno;
    kvpi_input_close(&input);
    if (file->bytes == NULL && file->budget.is_over)
        return refuse_memory(file, command, "the log");
    return file->bytes == NULL ? kvpi_tool_fail(command, "%s: %s", file->path, strerror(error))
                               : TOOL_OK;
}

static int refuse_header(const char *command, const char *path, kvp_status status)
{
    if (status == KVP_E_VERSION)
        return kvpi_tool_fail(command,
                              "%s: an operation log of another version; this program reads "
                              "version %d: record it anew, or use the release that wrote it",
                              path, KVP_OPLOG_VERSION);
    if (status == KVP_E_FORMAT)
        return kvpi_tool_fail(command,
                              "%s: not an operation log, or cut or damaged within its "
                              "configuration",
                              path);
    return kvpi_tool_fail(command, "%s: %s", path, kvp_status_text(status));
}

int kvpi_trace_open(struct kvpi_trace_file *file, const char *command, const char *path,
                    uint64_t max_memory)
{
    memset(file, 0, sizeof *file);
    file->path = path;
    file->budget.max = max_memory;
    if (read_file(file, command) != TOOL_OK)
        return TOOL_FAILED;
    kvp_status status = kvp_oplog_open(file->bytes, file->n_bytes, &file->log);
    if (status == KVP_OK)
        return TOOL_OK;
    size_t n_bytes = file->n_bytes;
    kvpi_trace_close(file);
    if (n_bytes == 0)
        return kvpi_tool_fail(command, "%s: is empty", path);
    return refuse_header(command, path, status);
}

/* What a new cache writes to at once, rounded up: for a block its place in a queue and marks, for a
 * unit's slot a duplicate's place, for a node one of the index, for sequences and namespaces their
 * places. */
static uint64_t new_cache_bytes(const kvp_config *c)
{
    const uint64_t blocks = (uint64_t)c->n_blocks + c->host_blocks;
    const uint64_t per_block = c->unit_tokens == 0 ? 1 : c->block_tokens / c->unit_tokens;
    const uint64_t slots = blocks * per_block;
    const bool has_dups = per_block > 1 || c->commit_policy == KVP_KEEP || c->steps != 0;
    return blocks * 64 + (has_dups ? slots * 16 : 0) + (c->n_nodes == 0 ? slots : c->n_nodes) * 16 +
           (uint64_t)c->max_seqs * (512 + 8 * (uint64_t)c->max_steps_out) +
           (uint64_t)c->max_namespaces * 512;
}

int kvpi_trace_check_cache(struct kvpi_trace_file *file, const char *command)
{
    kvp_config config;
    kvp_oplog_config(file->log, &config);
    return kvpi_budget_take(&file->budget, new_cache_bytes(&config))
               ? TOOL_OK
               : refuse_memory(file, command, "a cache of its configuration");
}

void kvpi_trace_close(struct kvpi_trace_file *file)
{
    kvp_oplog_close(file->log);
    free(file->bytes);
    memset(file, 0, sizeof *file);
}

int kvpi_trace_damaged(const struct kvpi_trace_file *file, const char *command, kvp_status status,
                       uint64_t index)
{
    uint64_t offset = kvp_oplog_offset(file->log);
    if (status != KVP_E_FORMAT)
        return kvpi_tool_fail(command, "%s: call #%" PRIu64 ": %s", file->path, index,
                              kvp_status_text(status));
    return kvpi_tool_fail(command, "%s: offset %" PRIu64 ": %s, in call #%" PRIu64, file->path,
                          offset, offset == file->n_bytes ? "the log ends" : "cut or damaged",
                          index);
}
