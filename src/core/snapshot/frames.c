/* frames: framing of records, and the first one. See snapshot.h.
 *
 * Checks of heads and checksums of records are XXH3-64; a head's seed is a constant, a record's its
 * number, so that a record does not pass for another.
 */
#include "core/snapshot/frames.h"

#include "base/base.h"
#include "base/sized.h"
#include "core/stages/hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#define HEAD_SEED 0x6B76707365656473u /* "kvpseeds" */

static void put_record_head(uint8_t *out, uint32_t kind, uint32_t n_bytes, uint32_t number)
{
    struct kvpi_snap_bytes b = {out, out + KVPI_SNAP_HEAD, 0};
    kvpi_snap_put_u32(&b, kind);
    kvpi_snap_put_u32(&b, n_bytes);
    kvpi_snap_put_u32(&b, number);
    kvpi_snap_put_u32(&b, (uint32_t)XXH3_64bits_withSeed(out, 12, HEAD_SEED));
}

struct kvpi_snap_bytes kvpi_snap_begin(const struct kvpi_snap_writer *writer)
{
    return (struct kvpi_snap_bytes){writer->buffer + 2 * KVPI_SNAP_HEAD,
                                    writer->buffer + writer->capacity - 8, 0};
}

/* The checksum of a record whose second head and payload lie one after the other. */
static uint64_t payload_checksum(const uint8_t *head, size_t n_bytes, uint32_t number)
{
    return XXH3_64bits_withSeed(head, KVPI_SNAP_HEAD + n_bytes, number);
}

void kvpi_snap_end(struct kvpi_snap_writer *writer, uint32_t kind,
                   const struct kvpi_snap_bytes *payload)
{
    uint8_t *head = writer->buffer + KVPI_SNAP_HEAD;
    const size_t n_bytes = (size_t)(payload->at - head) - KVPI_SNAP_HEAD;
    struct kvpi_snap_bytes end = {payload->at, payload->at + 8, 0};
    KVPI_ASSERT(payload->at <= payload->end);
    if (writer->failed) {
        return;
    }
    put_record_head(writer->buffer, kind, (uint32_t)n_bytes, writer->number);
    memcpy(head, writer->buffer, KVPI_SNAP_HEAD);
    kvpi_snap_put_u64(&end, payload_checksum(head, n_bytes, writer->number));
    writer->number++;
    writer->failed = writer->sink->write(writer->sink->context, writer->buffer,
                                         n_bytes + KVPI_SNAP_OVERHEAD) != 0;
}

/* Read n bytes; 0 when the file ends before, or cannot be read. */
static int read_source(struct kvpi_snap_reader *reader, uint8_t *out, size_t n)
{
    while (n > 0 && !reader->is_cut) {
        size_t got = 0;
        if (reader->source->read(reader->source->context, out, n, &got) != 0 || got == 0 ||
            got > n) {
            reader->is_cut = 1;
            return 0;
        }
        out += got;
        n -= got;
    }
    return n == 0;
}

/* Pass over n bytes, in the buffer. */
static int skip(struct kvpi_snap_reader *reader, uint64_t n)
{
    while (n > 0) {
        const size_t part = n < reader->capacity ? (size_t)n : reader->capacity;
        if (!read_source(reader, reader->buffer, part)) {
            return 0;
        }
        n -= part;
    }
    return 1;
}

static int head_is_right(const uint8_t *head)
{
    struct kvpi_snap_bytes b = {(uint8_t *)(uintptr_t)(head + 12),
                                (uint8_t *)(uintptr_t)(head + KVPI_SNAP_HEAD), 0};
    return kvpi_snap_get_u32(&b) == (uint32_t)XXH3_64bits_withSeed(head, 12, HEAD_SEED);
}

int kvpi_snap_next(struct kvpi_snap_reader *reader, struct kvpi_snap_record *out)
{
    uint8_t *buffer = reader->buffer;
    uint8_t *head = buffer + KVPI_SNAP_HEAD;
    if (!read_source(reader, buffer, 2 * KVPI_SNAP_HEAD)) {
        return 0;
    }
    if (!head_is_right(head)) {
        if (!head_is_right(buffer)) {
            reader->is_cut = 1; /* the next one cannot be found */
            return 0;
        }
        memcpy(head, buffer, KVPI_SNAP_HEAD);
    }
    struct kvpi_snap_bytes b = {head, head + KVPI_SNAP_HEAD, 0};
    out->kind = kvpi_snap_get_u32(&b);
    const uint32_t n_bytes = kvpi_snap_get_u32(&b);
    const uint32_t number = kvpi_snap_get_u32(&b);
    out->damaged = 1;
    if (n_bytes > reader->capacity - KVPI_SNAP_OVERHEAD) {
        return skip(reader, (uint64_t)n_bytes + 8);
    }
    uint8_t *payload = head + KVPI_SNAP_HEAD;
    if (!read_source(reader, payload, (size_t)n_bytes + 8)) {
        return 0;
    }
    struct kvpi_snap_bytes end = {payload + n_bytes, payload + n_bytes + 8, 0};
    out->payload = (struct kvpi_snap_bytes){payload, payload + n_bytes, 0};
    out->damaged =
        kvpi_snap_get_u64(&end) != payload_checksum(head, n_bytes, number) || number < reader->next;
    if (!out->damaged) {
        reader->next = (uint64_t)number + 1;
    }
    return 1;
}

void kvpi_snap_put_config(struct kvpi_snap_bytes *b, const kvp_snapshot_info *info)
{
    kvpi_snap_put_u32(b, info->block_tokens);
    kvpi_snap_put_u32(b, info->unit_tokens);
    kvpi_snap_put_u32(b, info->n_blocks);
    kvpi_snap_put_u32(b, info->host_blocks);
    kvpi_snap_put_u32(b, info->max_unit_keys);
    kvpi_snap_put_u32(b, info->commit_policy);
    kvpi_snap_put_u32(b, info->steps);
    kvpi_snap_put_u64(b, info->hash_seed);
    kvpi_snap_put_u64(b, info->block_bytes);
    kvpi_snap_put_u64(b, info->n_namespaces);
    kvpi_snap_put_u64(b, info->n_nodes);
    kvpi_snap_put_u64(b, info->saved_blocks);
    kvpi_snap_put_u64(b, info->saved_units);
    kvpi_snap_put_u32(b, info->n_groups);
    for (uint32_t g = 0; g < info->n_groups; g++) {
        kvpi_snap_put_u32(b, info->groups[g].sink_tokens);
        kvpi_snap_put_u32(b, info->groups[g].recent_tokens);
        kvpi_snap_put_u32(b, info->groups[g].block_tokens);
    }
    kvpi_snap_put_u32(b, info->state_slots);
    kvpi_snap_put_u64(b, info->state_bytes);
    kvpi_snap_put_u32(b, info->model_bytes);
    kvpi_snap_put(b, info->model, info->model_bytes);
}

/* Blocks of a group are whole units. */
static int is_block_size(uint32_t S, uint32_t U)
{
    return S > 0 && S <= KVP_BLOCK_TOKENS_MAX && U > 0 && S % U == 0;
}

static void get_groups(struct kvpi_snap_bytes *b, kvp_snapshot_info *info)
{
    for (uint32_t g = 0; g < info->n_groups; g++) {
        kvp_group *group = &info->groups[g];
        group->sink_tokens = kvpi_snap_get_u32(b);
        group->recent_tokens = kvpi_snap_get_u32(b);
        group->block_tokens = kvpi_snap_get_u32(b);
        b->bad |= !is_block_size(group->block_tokens, info->unit_tokens);
    }
}

static void get_states(struct kvpi_snap_bytes *b, kvp_snapshot_info *info)
{
    info->state_slots = kvpi_snap_get_u32(b);
    info->state_bytes = kvpi_snap_get_u64(b);
    if (info->state_slots == 0) {
        b->bad |= info->state_bytes > 0;
    } else {
        b->bad |= info->state_slots < 2 || info->state_slots > 1u << 30 ||
                  info->state_bytes > INT32_MAX || info->n_groups == KVP_GROUPS_MAX ||
                  (info->state_bytes > 0) != (info->block_bytes > 0);
    }
}

static int get_config(struct kvpi_snap_bytes *b, kvp_snapshot_info *info)
{
    memset(info, 0, sizeof(*info));
    info->block_tokens = kvpi_snap_get_u32(b);
    info->unit_tokens = kvpi_snap_get_u32(b);
    info->n_blocks = kvpi_snap_get_u32(b);
    info->host_blocks = kvpi_snap_get_u32(b);
    info->max_unit_keys = kvpi_snap_get_u32(b);
    info->commit_policy = kvpi_snap_get_u32(b);
    info->steps = kvpi_snap_get_u32(b);
    info->hash_seed = kvpi_snap_get_u64(b);
    info->block_bytes = kvpi_snap_get_u64(b);
    info->n_namespaces = kvpi_snap_get_u64(b);
    info->n_nodes = kvpi_snap_get_u64(b);
    info->saved_blocks = kvpi_snap_get_u64(b);
    info->saved_units = kvpi_snap_get_u64(b);
    info->n_groups = kvpi_snap_get_u32(b);
    if (info->n_groups == 0 || info->n_groups > KVP_GROUPS_MAX) {
        return 0;
    }
    get_groups(b, info);
    get_states(b, info);
    info->model_bytes = kvpi_snap_get_u32(b);
    const uint8_t *model = kvpi_snap_get(b, info->model_bytes);
    if (!kvpi_snap_whole(b) || info->model_bytes > sizeof(info->model)) {
        return 0;
    }
    memcpy(info->model, model, info->model_bytes);
    return is_block_size(info->block_tokens, info->unit_tokens) && info->n_nodes < UINT32_MAX &&
           info->block_bytes <= INT32_MAX && info->n_namespaces <= 65536 &&
           info->max_unit_keys <= 64 && info->n_blocks >= 2 && info->n_blocks <= INT32_MAX &&
           info->host_blocks <= INT32_MAX;
}

kvp_status kvpi_snap_open(struct kvpi_snap_reader *reader, kvp_snapshot_info *out_info)
{
    uint8_t magic[8];
    struct kvpi_snap_record record;
    if (!read_source(reader, magic, sizeof(magic)) || memcmp(magic, KVPI_SNAP_MAGIC, 7) != 0) {
        return KVP_E_FORMAT;
    }
    if (magic[7] != KVPI_SNAP_MAGIC[7]) {
        return KVP_E_VERSION;
    }
    return kvpi_snap_next(reader, &record) && record.kind == KVPI_SNAP_CONFIG && !record.damaged &&
                   get_config(&record.payload, out_info)
               ? KVP_OK
               : KVP_E_FORMAT;
}

static uint32_t largest_block(const kvp_snapshot_info *info)
{
    uint32_t most = 0;
    for (uint32_t g = 0; g < info->n_groups; g++) {
        most = kvpi_max_u32(most, info->groups[g].block_tokens);
    }
    return most;
}

size_t kvpi_snap_capacity(const kvp_snapshot_info *info)
{
    const size_t node =
        32 + (size_t)info->unit_tokens * 4 + (size_t)info->max_unit_keys * sizeof(struct kvpi_key);
    const size_t block =
        64 + (size_t)largest_block(info) / info->unit_tokens / 8 + (size_t)info->block_bytes;
    const size_t ids = 64 + (size_t)KVPI_SNAP_FREE_IDS * 4;
    const size_t state = 64 + (size_t)info->state_bytes;
    size_t largest = node > block ? node : block;
    largest = largest > ids ? largest : ids;
    largest = largest > state ? largest : state;
    return KVPI_SNAP_OVERHEAD + (largest > KVPI_SNAP_CONFIG_MAX ? largest : KVPI_SNAP_CONFIG_MAX);
}

void kvp_snapshot_options_init(kvp_snapshot_options *options)
{
    if (options == NULL)
        return;
    memset(options, 0, sizeof(*options));
    options->struct_size = sizeof(*options);
}

kvp_status kvp_snapshot_peek(const kvp_source *source, kvp_snapshot_info *out_info)
{
    uint8_t buffer[KVPI_SNAP_OVERHEAD + KVPI_SNAP_CONFIG_MAX];
    kvp_snapshot_info info;
    if (source == NULL || source->read == NULL || out_info == NULL) {
        return KVP_E_ARG;
    }
    struct kvpi_snap_reader reader = {source, buffer, sizeof(buffer), 0, 0};
    const kvp_status status = kvpi_snap_open(&reader, &info);
    if (status == KVP_OK) {
        *out_info = info;
    }
    return status;
}

int kvpi_snap_options_bad(const kvp_snapshot_options *options)
{
    return options == NULL || options->model_bytes > 255 ||
           (options->model == NULL && options->model_bytes > 0) ||
           options->block_bytes > INT32_MAX || options->state_bytes > INT32_MAX;
}

int kvpi_snap_bytes_bad(const kvp_snapshot_options *options, uint32_t state_slots)
{
    return state_slots > 0 && (options->state_bytes > 0) != (options->block_bytes > 0);
}
