/* log: entries written and read, one after the other. */
#include "store/file/log.h"

#include <errno.h>
#include <string.h>

#include "store/identity/identity_bytes.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

static const uint8_t MAGIC[8] = {'k', 'v', 'p', 'a', 'g', 'e', 'r', 'L'};

enum { AT_HEADER_SUM = 56, AT_SUM = 44, CHUNK = 1024 /* entries */ };

/* Slots that a log may name beyond its entries: puts that had begun when the writer was killed, and
 * records to come. */
enum { SPARE_SLOTS = 65536 };

static uint64_t offset_of(uint64_t number)
{
    return KVPI_LOG_HEADER + number * KVPI_LOG_ENTRY;
}

static uint64_t count_entries(uint64_t file_bytes)
{
    return file_bytes < KVPI_LOG_HEADER ? 0 : (file_bytes - KVPI_LOG_HEADER) / KVPI_LOG_ENTRY;
}

static uint64_t sum_entry(const struct kvpi_log *log, uint64_t number, const uint8_t *bytes)
{
    return XXH3_64bits_withSeed(bytes, AT_SUM, log->id + number * UINT64_C(0x9E3779B97F4A7C15));
}

static int transfer(const struct kvpi_log *log, int write, void *bytes, size_t n_bytes,
                    uint64_t offset)
{
    const struct kvpi_span span = {bytes, n_bytes};
    return write ? log->disk->write(log->disk->context, log->file, &span, 1, offset)
                 : log->disk->read(log->disk->context, log->file, &span, 1, offset);
}

/* ---------------------------------------------------------------------------------- open, close */

int kvpi_log_reserve(struct kvpi_log *log, uint64_t n_entries)
{
    if (n_entries <= log->n_reserved)
        return 0;
    const int error = log->disk->reserve(log->disk->context, log->file, offset_of(n_entries));
    if (error && error != ENOTSUP)
        return error;
    log->n_reserved = error ? UINT64_MAX : n_entries;
    return 0;
}

/* It could not be made: there is no file then. Gives the error. */
static int give_up(struct kvpi_log *log, const char *path, int error)
{
    kvpi_log_close(log);
    log->disk->remove(log->disk->context, path, 0);
    return error;
}

int kvpi_log_prepare(struct kvpi_log *log, const struct kvpi_disk *disk, const char *path,
                     uint64_t n_entries)
{
    *log = (struct kvpi_log){.disk = disk, .file = -1};
    int error = disk->open(disk->context, path,
                           KVPI_DISK_WRITE | KVPI_DISK_CREATE | KVPI_DISK_EMPTY, &log->file);
    if (!error)
        error = kvpi_log_reserve(log, n_entries);
    return error ? give_up(log, path, error) : 0;
}

int kvpi_log_begin(struct kvpi_log *log, const struct kvpi_log_form *form, uint64_t id)
{
    log->id = id;
    log->form = *form;
    uint8_t header[KVPI_LOG_HEADER] = {0};
    memcpy(header, MAGIC, sizeof MAGIC);
    kvpi_put32(header + 8, KVPI_LOG_VERSION);
    kvpi_put32(header + 12, KVPI_LOG_ENTRY);
    kvpi_put64(header + 16, id);
    kvpi_put64(header + 24, form->slot_bytes);
    kvpi_put32(header + 32, form->header_bytes);
    kvpi_put32(header + 36, form->record_blocks);
    kvpi_put32(header + 40, form->block_tokens);
    kvpi_put32(header + 44, form->slab_slots);
    kvpi_put32(header + 48, form->n_slots);
    kvpi_put64(header + AT_HEADER_SUM, XXH3_64bits(header, AT_HEADER_SUM));
    return transfer(log, 1, header, sizeof header, 0);
}

int kvpi_log_create(struct kvpi_log *log, const struct kvpi_disk *disk, const char *path,
                    const struct kvpi_log_form *form, uint64_t id)
{
    int error = kvpi_log_prepare(log, disk, path, 0);
    if (error)
        return error;
    error = kvpi_log_begin(log, form, id);
    return error ? give_up(log, path, error) : 0;
}

static kvp_status read_header(struct kvpi_log *log)
{
    uint8_t header[KVPI_LOG_HEADER];
    uint64_t bytes = 0;
    log->error = log->disk->size(log->disk->context, log->file, &bytes);
    if (!log->error && bytes < sizeof header)
        return KVP_E_FORMAT;
    if (!log->error)
        log->error = transfer(log, 0, header, sizeof header, 0);
    if (log->error)
        return KVP_E_IO;
    if (memcmp(header, MAGIC, sizeof MAGIC) != 0)
        return KVP_E_FORMAT;
    if (kvpi_get32(header + 8) != KVPI_LOG_VERSION)
        return KVP_E_VERSION;
    if (kvpi_get64(header + AT_HEADER_SUM) != XXH3_64bits(header, AT_HEADER_SUM) ||
        kvpi_get32(header + 12) != KVPI_LOG_ENTRY || kvpi_get32(header + 52) != 0)
        return KVP_E_FORMAT;
    log->id = kvpi_get64(header + 16);
    log->form.slot_bytes = kvpi_get64(header + 24);
    log->form.header_bytes = kvpi_get32(header + 32);
    log->form.record_blocks = kvpi_get32(header + 36);
    log->form.block_tokens = kvpi_get32(header + 40);
    log->form.slab_slots = kvpi_get32(header + 44);
    log->form.n_slots = kvpi_get32(header + 48);
    if (log->form.slot_bytes == 0 || log->form.slab_slots == 0 || log->form.n_slots == 0 ||
        log->form.n_slots > INT32_MAX || log->form.slab_slots > log->form.n_slots ||
        log->form.slot_bytes > INT64_MAX / log->form.n_slots)
        return KVP_E_FORMAT;
    log->n_entries = log->n_reserved = count_entries(bytes);
    return KVP_OK;
}

kvp_status kvpi_log_open(struct kvpi_log *log, const struct kvpi_disk *disk, const char *path,
                         int writable)
{
    *log = (struct kvpi_log){.disk = disk, .file = -1};
    log->error = disk->open(disk->context, path, writable ? KVPI_DISK_WRITE : 0u, &log->file);
    if (log->error)
        return log->error == ENOENT ? KVP_E_FORMAT : KVP_E_IO;
    const kvp_status status = read_header(log);
    if (status != KVP_OK)
        kvpi_log_close(log);
    return status;
}

void kvpi_log_close(struct kvpi_log *log)
{
    if (log->file >= 0)
        log->disk->close(log->disk->context, log->file);
    log->file = -1;
}

/* -------------------------------------------------------------------------------------- entries */

int kvpi_log_flush(struct kvpi_log *log)
{
    if (log->n_buffered == 0)
        return 0;
    const int error = transfer(log, 1, log->buffer, (size_t)log->n_buffered * KVPI_LOG_ENTRY,
                               offset_of(log->n_entries - log->n_buffered));
    log->n_buffered = 0;
    return error;
}

int kvpi_log_append(struct kvpi_log *log, const struct kvpi_log_entry *entry)
{
    uint8_t alone[KVPI_LOG_ENTRY] = {0};
    uint8_t *bytes = log->buffer ? log->buffer + log->n_buffered * KVPI_LOG_ENTRY : alone;
    kvpi_put32(bytes, entry->kind);
    kvpi_put32(bytes + 4, entry->slot);
    kvpi_put32(bytes + 8, entry->generation);
    kvpi_put32(bytes + 12, entry->parent);
    memcpy(bytes + 16, entry->key, sizeof entry->key);
    kvpi_put32(bytes + 28, entry->written);
    kvpi_put64(bytes + 32, entry->space);
    kvpi_put32(bytes + 40, entry->parent_generation);
    kvpi_put64(bytes + AT_SUM, sum_entry(log, log->n_entries, bytes));
    if (log->buffer) {
        log->n_entries++;
        log->n_buffered++;
        return log->n_buffered == KVPI_LOG_BUFFER / KVPI_LOG_ENTRY ? kvpi_log_flush(log) : 0;
    }
    const int error = transfer(log, 1, alone, sizeof alone, offset_of(log->n_entries));
    if (!error)
        log->n_entries++;
    return error;
}

/* 0: damaged, or never written. */
static int read_entry(const struct kvpi_log *log, uint64_t number, const uint8_t *bytes,
                      struct kvpi_log_entry *out_entry)
{
    out_entry->kind = kvpi_get32(bytes);
    if (kvpi_get64(bytes + AT_SUM) != sum_entry(log, number, bytes) ||
        (out_entry->kind != KVPI_LOG_PUT && out_entry->kind != KVPI_LOG_DROP))
        return 0;
    out_entry->slot = kvpi_get32(bytes + 4);
    out_entry->generation = kvpi_get32(bytes + 8);
    out_entry->parent = kvpi_get32(bytes + 12);
    memcpy(out_entry->key, bytes + 16, sizeof out_entry->key);
    out_entry->written = kvpi_get32(bytes + 28);
    out_entry->space = kvpi_get64(bytes + 32);
    out_entry->parent_generation = kvpi_get32(bytes + 40);
    return 1;
}

uint32_t kvpi_log_slots(const struct kvpi_log *log)
{
    const uint64_t n = log->n_entries + log->n_entries / 2 + SPARE_SLOTS;
    return n < log->form.n_slots ? (uint32_t)n : log->form.n_slots;
}

int kvpi_log_read(struct kvpi_log *log, uint64_t from, uint64_t most, kvpi_log_entry_fn entry,
                  void *context, uint64_t *out_next, uint64_t *out_n_damaged)
{
    uint64_t bytes = 0;
    int error = log->disk->size(log->disk->context, log->file, &bytes);
    uint64_t end = count_entries(bytes);
    if (end > from && end - from > most)
        end = from + most;
    uint8_t chunk[CHUNK * KVPI_LOG_ENTRY];
    while (!error && from < end) {
        const uint64_t n = end - from < CHUNK ? end - from : CHUNK;
        error = transfer(log, 0, chunk, (size_t)n * KVPI_LOG_ENTRY, offset_of(from));
        for (uint64_t i = 0; i < n && !error; i++) {
            struct kvpi_log_entry read;
            if (read_entry(log, from + i, chunk + i * KVPI_LOG_ENTRY, &read))
                entry(context, &read);
            else
                ++*out_n_damaged;
        }
        if (!error)
            from += n;
    }
    *out_next = from;
    log->error = error;
    return error;
}
