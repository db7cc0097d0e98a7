/* survey: logs and records read beside their writers, and cleaned without them.
 *
 * A scan takes no lock while it reads: what a writer changes meanwhile is found by reading its log
 * again, before a record is called bad. */
#include "store/file/survey.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "store/file/home.h"
#include "store/file/recover.h"
#include "store/catalog.h"
#include "store/identity/digest.h"

struct scan {
    const struct kvpi_disk *disk;
    const kvp_store_scan_options *options;
    kvp_digester digester;
    struct kvpi_mac mac;
    int has_mac;
    kvp_status status;
};

/* One home while it is scanned. */
struct place {
    struct scan *scan;
    const char *path;
    kvp_store_directory directory;
    struct kvpi_log log;
    struct kvpi_index index;
    struct kvpi_slabs slabs;
    uint8_t *slot;         /* [slot_bytes] aligned to pages */
    kvp_store_record *bad; /* [n_bad] to be looked at again */
    uint32_t n_bad;
    uint32_t n_bad_max;
};

/* ------------------------------------------------------------------------------------ a record */

/* Does the log say the same of the record before as the header? */
static int is_parent(const struct kvpi_index *index, uint32_t entry, const kvp_digest *key)
{
    const uint32_t parent = kvpi_index_parent(index, entry);
    if (parent == KVPI_INDEX_NONE)
        return index->entries[entry].parent == kvpi_index_outside(key->bytes);
    return memcmp(key->bytes, index->entries[parent].key, sizeof index->entries[parent].key) == 0;
}

/* The header is whole: is it this record's? */
static uint32_t judge(struct place *place, const struct kvpi_record_head *head, uint32_t entry)
{
    const struct kvpi_entry *e = &place->index.entries[entry];
    const struct kvpi_log_form *form = &place->log.form;
    if (head->place.slot != entry || head->place.generation != e->generation)
        return KVP_BAD_PLACE;
    if (head->header_bytes != form->header_bytes ||
        head->payload_bytes > form->slot_bytes - form->header_bytes)
        return KVP_BAD_LENGTH;
    kvp_digest key;
    static const kvp_digest zero;
    const int is_root = memcmp(head->parent.bytes, zero.bytes, sizeof zero.bytes) == 0;
    if (!kvpi_record_well_formed(place->slot) || head->n_blocks != form->record_blocks ||
        head->block_tokens != form->block_tokens ||
        memcmp(head->fingerprint.bytes, place->directory.fingerprint,
               sizeof place->directory.fingerprint) != 0 ||
        kvp_record_key(&place->scan->digester, &head->digest, head->group, &head->slice, &key) !=
            KVP_OK ||
        memcmp(key.bytes, e->key, sizeof e->key) != 0 ||
        head->space != kvpi_index_space(&place->index, entry) ||
        kvpi_index_minute(head->place.written) != e->written ||
        is_root != (e->parent == KVPI_INDEX_NONE) ||
        (!is_root && !is_parent(&place->index, entry, &head->parent)))
        return KVP_BAD_IDENTITY;
    return KVP_FOUND_GOOD;
}

static void tell_header(const struct kvpi_record_head *head, kvp_store_record *out_record)
{
    out_record->has_header = 1;
    out_record->written = head->place.written;
    out_record->kind = head->kind;
    out_record->group = head->group;
    out_record->position = head->position;
    out_record->n_blocks = head->n_blocks;
    out_record->slice = head->slice;
    out_record->payload_bytes = head->payload_bytes;
    out_record->digest = head->digest;
}

/* Read a record, and decide. */
static void look(struct place *place, uint32_t entry, kvp_store_record *out_record)
{
    struct scan *scan = place->scan;
    const struct kvpi_log_form *form = &place->log.form;
    const int whole = scan->options->depth >= KVP_SCAN_PAYLOADS;
    const struct kvpi_span span = {place->slot,
                                   whole ? (size_t)form->slot_bytes : form->header_bytes};
    out_record->has_header = 0;
    int staged; /* it is not: the slot lies by 4096 */
    if (!place->slot ||
        kvpi_slabs_transfer(&place->slabs, 0, entry, &span, 1, NULL, &staged) != 0) {
        out_record->found = KVP_FOUND_UNREADABLE;
        return;
    }
    struct kvpi_record_head head;
    enum kvpi_record_fault fault = kvpi_record_read_head(place->slot, form->header_bytes, &head);
    if (fault != KVPI_RECORD_GOOD) {
        out_record->found = (uint32_t)fault - KVPI_RECORD_DAMAGED;
        return;
    }
    out_record->found = judge(place, &head, entry);
    if (out_record->found == KVP_BAD_PLACE)
        return; /* it is another record that lies there */
    tell_header(&head, out_record);
    if (out_record->found != KVP_FOUND_GOOD || !whole)
        return;
    const struct kvpi_span payload = {place->slot + form->header_bytes, (size_t)head.payload_bytes};
    fault = kvpi_record_check_payload(place->slot, &payload, 1, scan->has_mac ? &scan->mac : NULL);
    if (fault != KVPI_RECORD_GOOD)
        out_record->found = (uint32_t)fault - KVPI_RECORD_DAMAGED;
}

static void tell(const struct scan *scan, const kvp_store_record *record)
{
    if (scan->options->record)
        scan->options->record(scan->options->context, record);
}

static void keep_bad(struct place *place, const kvp_store_record *record)
{
    if (place->n_bad == place->n_bad_max) {
        const uint32_t n = place->n_bad_max ? place->n_bad_max * 2 : 16;
        kvp_store_record *more = realloc(place->bad, n * sizeof *more);
        if (!more) {
            place->scan->status = KVP_E_NO_MEMORY;
            return;
        }
        place->bad = more;
        place->n_bad_max = n;
    }
    place->bad[place->n_bad++] = *record;
}

/* A record of the writer's log, as it is now, against those that were bad. */
static void take_news(void *context, const struct kvpi_log_entry *entry)
{
    struct place *place = context;
    uint32_t low = 0;
    uint32_t high = place->n_bad; /* they stand in the order of their slots */
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (place->bad[middle].slot < entry->slot)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == place->n_bad || place->bad[low].slot != entry->slot)
        return;
    kvp_store_record *record = &place->bad[low];
    if (entry->generation > record->generation ||
        (entry->generation == record->generation && entry->kind == KVPI_LOG_DROP))
        record->found = KVP_FOUND_RACED;
}

static void tell_bad(struct place *place)
{
    char path[KVPI_PATH_BYTES];
    struct kvpi_log log;
    uint64_t next;
    uint64_t n_damaged = 0;
    kvpi_path_join(path, place->path, "log");
    if (place->n_bad > 0 && kvpi_log_open(&log, place->scan->disk, path, 0) == KVP_OK) {
        kvpi_log_read(&log, 0, UINT64_MAX, take_news, place, &next, &n_damaged);
        kvpi_log_close(&log);
    }
    for (uint32_t i = 0; i < place->n_bad; i++)
        tell(place->scan, &place->bad[i]);
}

static void scan_records(struct place *place)
{
    const kvp_store_scan_options *options = place->scan->options;
    for (uint32_t e = 0; e < place->index.n && place->scan->status == KVP_OK; e++) {
        const struct kvpi_entry *entry = &place->index.entries[e];
        if (entry->state != KVPI_ENTRY_READY)
            continue;
        kvp_store_record record = {.found = KVP_FOUND_UNREAD,
                                   .slot = e,
                                   .generation = entry->generation,
                                   .parent = kvpi_index_parent(&place->index, e),
                                   .space = kvpi_index_space(&place->index, e),
                                   .written = (uint64_t)entry->written * 60};
        if (options->one_space && record.space != options->space)
            continue;
        for (int i = 0; i < 2 && options->depth >= KVP_SCAN_HEADERS; i++) {
            look(place, e, &record);
            if (record.found == KVP_FOUND_GOOD)
                break;
        }
        if (record.found == KVP_FOUND_GOOD || record.found == KVP_FOUND_UNREAD)
            tell(place->scan, &record);
        else
            keep_bad(place, &record);
    }
    tell_bad(place);
}

/* ----------------------------------------------------------------------------------- the places */

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* 0: this is no fingerprint's directory. */
static int read_fingerprint(const char *name, uint8_t out[8])
{
    if (strlen(name) != 16)
        return 0;
    for (unsigned i = 0; i < 8; i++) {
        const int high = hex_digit(name[2 * i]);
        const int low = hex_digit(name[2 * i + 1]);
        if (high < 0 || low < 0)
            return 0;
        out[i] = (uint8_t)(high * 16 + low);
    }
    return 1;
}

static int is_home(const char *path)
{
    const char *name = strrchr(path, '/');
    return name && name[1] == 'w' && name[2] >= '0' && name[2] <= '9';
}

static void describe(struct place *place)
{
    kvp_store_directory *directory = &place->directory;
    const struct kvpi_log_form *form = &place->log.form;
    directory->slot_bytes = form->slot_bytes;
    directory->header_bytes = form->header_bytes;
    directory->record_blocks = form->record_blocks;
    directory->block_tokens = form->block_tokens;
    directory->n_slots = form->n_slots;
    directory->records = place->index.n_used;
    directory->log_entries = place->log.n_entries;
}

/* Read the log into the index. */
static kvp_status read_log(struct place *place)
{
    char path[KVPI_PATH_BYTES];
    kvpi_path_join(path, place->path, "log");
    kvp_status status = kvpi_log_open(&place->log, place->scan->disk, path, 0);
    if (status != KVP_OK)
        return status;
    status = kvpi_index_open(&place->index, kvpi_log_slots(&place->log));
    if (status != KVP_OK)
        return status;
    return kvpi_recover(&place->log, &place->index, UINT32_MAX, &place->directory.damaged_entries);
}

static kvp_status open_slots(struct place *place)
{
    const struct kvpi_log_form *form = &place->log.form;
    if (form->header_bytes < KVPI_RECORD_FIXED || form->header_bytes > form->slot_bytes ||
        form->slot_bytes % KVPI_RECORD_PAGE != 0 || form->slot_bytes > SIZE_MAX)
        return KVP_E_FORMAT;
    /* What cannot be opened, or is too short, is told record by record. */
    if (kvpi_slabs_open(&place->slabs, place->scan->disk, place->path, form, 0) == ENOMEM)
        return KVP_E_NO_MEMORY;
    /* A slab is there, so a slot is no larger than it: no log makes us ask for more. */
    if (place->slabs.n_slabs > 0)
        place->slot = aligned_alloc(KVPI_RECORD_PAGE, (size_t)form->slot_bytes);
    return place->slot || place->slabs.n_slabs == 0 ? KVP_OK : KVP_E_NO_MEMORY;
}

static void scan_home(void *context, const char *path, const char *parent_name)
{
    struct scan *scan = context;
    struct place place = {.scan = scan, .path = path, .directory = {.path = path, .why = ""}};
    if (!is_home(path) || !read_fingerprint(parent_name, place.directory.fingerprint))
        return;
    place.log.file = -1;
    place.log.disk = scan->disk;
    place.directory.in_use = (uint32_t)kvpi_home_in_use(scan->disk, path);
    place.directory.opened_ns = kvpi_home_opened(scan->disk, path);
    (void)kvpi_home_bytes(scan->disk, path, &place.directory.bytes);
    place.directory.status = read_log(&place);
    if (place.directory.status == KVP_OK && scan->options->depth >= KVP_SCAN_HEADERS)
        place.directory.status = open_slots(&place);
    if (place.directory.status == KVP_OK)
        describe(&place);
    if (place.directory.status == KVP_E_IO)
        place.directory.why = strerror(place.log.error);
    if (place.directory.status == KVP_E_NO_MEMORY)
        scan->status = KVP_E_NO_MEMORY;
    if (scan->options->directory)
        scan->options->directory(scan->options->context, &place.directory);
    if (place.directory.status == KVP_OK && scan->options->depth >= KVP_SCAN_RECORDS)
        scan_records(&place);
    if (place.slabs.slabs)
        kvpi_slabs_close(&place.slabs);
    kvpi_index_close(&place.index);
    kvpi_log_close(&place.log);
    free(place.slot);
    free(place.bad);
}

kvp_status kvpi_survey_scan(const struct kvpi_disk *disk, const char *root,
                            const kvp_store_scan_options *options, char *out_why, size_t why_bytes)
{
    struct scan scan = {.disk = disk, .options = options};
    scan.status = kvpi_sha_open(&scan.digester.sha);
    if (scan.status == KVP_OK && options->secret_bytes > 0) {
        scan.status = kvpi_mac_open(&scan.mac, options->secret, options->secret_bytes);
        scan.has_mac = scan.status == KVP_OK;
    }
    int error = 0;
    if (scan.status == KVP_OK)
        error = kvpi_home_each(disk, root, scan_home, &scan);
    kvpi_sha_close(&scan.digester.sha);
    if (scan.has_mac)
        kvpi_mac_close(&scan.mac);
    if (error)
        return kvpi_why(KVP_E_IO, out_why, why_bytes, "\"%s\": %s", root, strerror(error));
    return kvpi_why(scan.status, out_why, why_bytes, "%s",
                    scan.status == KVP_OK ? "" : kvp_status_text(scan.status));
}

/* ------------------------------------------------------------------------------------- cleaning */

struct cleaning {
    const struct kvpi_disk *disk;
    const kvp_store_match *match;
    kvp_store_cleaned *cleaned;
    struct kvpi_log log;
    struct kvpi_catalog *catalog;
    int error; /* of a write */
    kvp_status status;
    char *out_why; /* of the first that is left alone, [why_bytes] */
    size_t why_bytes;
};

static void write_drop(void *context, uint32_t entry)
{
    struct cleaning *cleaning = context;
    const struct kvpi_entry *e = &cleaning->catalog->index.entries[entry];
    const struct kvpi_log_entry line = {
        .kind = KVPI_LOG_DROP, .slot = entry, .generation = e->generation, .parent = e->parent};
    if (!cleaning->error)
        cleaning->error = kvpi_log_append(&cleaning->log, &line);
}

/* The home's lock is held, its log is open. */
static kvp_status clean_log(struct cleaning *cleaning)
{
    struct kvpi_catalog *catalog = calloc(1, sizeof *catalog);
    if (!catalog)
        return KVP_E_NO_MEMORY;
    uint64_t n_damaged;
    kvp_status status = kvpi_index_open(&catalog->index, kvpi_log_slots(&cleaning->log));
    if (status == KVP_OK)
        status = kvpi_recover(&cleaning->log, &catalog->index, UINT32_MAX, &n_damaged);
    if (status == KVP_OK) {
        const uint64_t before = catalog->index.n_used;
        cleaning->catalog = catalog;
        catalog->context = cleaning;
        catalog->leave = write_drop;
        kvpi_catalog_evict(catalog, cleaning->match);
        const uint64_t n = before - catalog->index.n_used;
        if (!cleaning->error && n > 0)
            cleaning->error = cleaning->disk->sync(cleaning->disk->context, cleaning->log.file);
        cleaning->cleaned->records += n;
        cleaning->cleaned->bytes += n * cleaning->log.form.slot_bytes;
    }
    kvpi_index_close(&catalog->index);
    free(catalog);
    return status;
}

static void leave_alone(struct cleaning *cleaning, const char *path, const char *why)
{
    if (cleaning->cleaned->unknown++ == 0)
        kvpi_why(KVP_OK, cleaning->out_why, cleaning->why_bytes, "\"%s\": %s", path, why);
}

static void clean_home(void *context, const char *path, const char *parent_name)
{
    struct cleaning *cleaning = context;
    uint8_t fingerprint[8];
    if (!is_home(path) || !read_fingerprint(parent_name, fingerprint))
        return;
    cleaning->cleaned->directories++;
    int lock;
    const int error = kvpi_home_take(cleaning->disk, path, &lock);
    cleaning->cleaned->in_use += error == EWOULDBLOCK;
    if (error && error != EWOULDBLOCK)
        leave_alone(cleaning, path, strerror(error));
    if (error)
        return;
    char log_path[KVPI_PATH_BYTES];
    kvpi_path_join(log_path, path, "log");
    kvp_status status = kvpi_log_open(&cleaning->log, cleaning->disk, log_path, 1);
    if (status != KVP_OK) {
        leave_alone(cleaning, path,
                    status == KVP_E_IO ? strerror(cleaning->log.error) : kvp_status_text(status));
    } else {
        status = clean_log(cleaning);
        if (status != KVP_OK)
            cleaning->status = status;
        kvpi_log_close(&cleaning->log);
    }
    cleaning->disk->close(cleaning->disk->context, lock);
}

kvp_status kvpi_survey_clean(const struct kvpi_disk *disk, const char *root,
                             const kvp_store_match *match, kvp_store_cleaned *out_cleaned,
                             char *out_why, size_t why_bytes)
{
    *out_cleaned = (kvp_store_cleaned){0};
    struct cleaning cleaning = {.disk = disk,
                                .match = match,
                                .cleaned = out_cleaned,
                                .out_why = out_why,
                                .why_bytes = why_bytes};
    int root_lock = -1;
    int error = kvpi_home_lock_root(disk, root, &root_lock);
    if (!error || error == ENOENT)
        error = kvpi_home_each(disk, root, clean_home, &cleaning);
    if (root_lock >= 0)
        disk->close(disk->context, root_lock);
    if (!error)
        error = cleaning.error;
    if (error)
        return kvpi_why(KVP_E_IO, out_why, why_bytes, "\"%s\": %s", root, strerror(error));
    return cleaning.status == KVP_OK ? KVP_OK
                                     : kvpi_why(cleaning.status, out_why, why_bytes, "%s",
                                                kvp_status_text(cleaning.status));
}
