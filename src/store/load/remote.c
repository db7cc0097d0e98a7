/* remote: a record is judged by its own header and by the name that it is under: MODEL and KEY of
 * "kvp1:{TAG}:MODEL:KEY". */
#include "store/load/remote.h"

#include <stdio.h>
#include <string.h>

#include "store/identity/identity_bytes.h"
#include "store/identity/digest.h"

enum { AT_HEADER_BYTES = 16, AT_PAYLOAD_BYTES = 24, AT_SPACE = 160, AT_WRITTEN = 168 };
enum { MODEL_DIGITS = 16, KEY_DIGITS = 64 };

struct remote_scan {
    const kvp_store_scan_options *options;
    kvp_digester digester;
    struct kvpi_mac mac;
    int has_mac;
};

/* 1: the name ends in these bytes in hex, at this distance from its end. */
static int names(const char *name, size_t from_end, const uint8_t *bytes, size_t n_bytes)
{
    const size_t length = strlen(name);
    if (length < from_end)
        return 0;
    for (size_t i = 0; i < n_bytes; i++) {
        char digits[3];
        snprintf(digits, sizeof digits, "%02x", bytes[i]);
        if (memcmp(name + length - from_end + 2 * i, digits, 2) != 0)
            return 0;
    }
    return 1;
}

/* All of it is there: is it a record, and this name's? */
static uint32_t judge(struct remote_scan *scan, const char *name, const uint8_t *bytes,
                      size_t n_bytes, struct kvpi_record_head *out_head)
{
    const uint32_t header_bytes = kvpi_get32(bytes + AT_HEADER_BYTES);
    if (header_bytes < KVPI_RECORD_FIXED || header_bytes > n_bytes)
        return KVP_BAD_DAMAGED;
    enum kvpi_record_fault fault = kvpi_record_read_head(bytes, header_bytes, out_head);
    if (fault != KVPI_RECORD_GOOD)
        return (uint32_t)fault - KVPI_RECORD_DAMAGED;
    if (out_head->place.slot != 0 || out_head->place.generation != 0)
        return KVP_BAD_PLACE;
    if (out_head->payload_bytes != n_bytes - header_bytes)
        return KVP_BAD_LENGTH;
    kvp_digest key;
    if (!kvpi_record_well_formed(bytes) ||
        kvp_record_key(&scan->digester, &out_head->digest, out_head->group, &out_head->slice,
                       &key) != KVP_OK ||
        !names(name, KEY_DIGITS, key.bytes, sizeof key.bytes) ||
        !names(name, KEY_DIGITS + 1 + MODEL_DIGITS, out_head->fingerprint.bytes, MODEL_DIGITS / 2))
        return KVP_BAD_IDENTITY;
    if (scan->options->depth < KVP_SCAN_PAYLOADS)
        return KVP_FOUND_GOOD;
    const struct kvpi_span payload = {(void *)(uintptr_t)(bytes + header_bytes),
                                      n_bytes - header_bytes};
    fault = kvpi_record_check_payload(bytes, &payload, 1, scan->has_mac ? &scan->mac : NULL);
    return fault == KVPI_RECORD_GOOD ? KVP_FOUND_GOOD : (uint32_t)fault - KVPI_RECORD_DAMAGED;
}

static int tell_record(void *context, const char *name, const uint8_t *bytes, size_t n_bytes)
{
    struct remote_scan *scan = context;
    struct kvpi_record_head head = {0};
    kvp_store_record record = {.found = KVP_FOUND_UNREAD, .parent = UINT32_MAX};
    if (!bytes || n_bytes == 0) { /* it went after its name was told */
        record.found = KVP_FOUND_RACED;
    } else if (n_bytes < KVPI_RECORD_FIXED) {
        record.found = KVP_BAD_DAMAGED;
    } else {
        record.space = kvpi_get64(bytes + AT_SPACE);
        record.written = kvpi_get64(bytes + AT_WRITTEN);
        record.payload_bytes = kvpi_get64(bytes + AT_PAYLOAD_BYTES);
        if (scan->options->depth >= KVP_SCAN_HEADERS)
            record.found = judge(scan, name, bytes, n_bytes, &head);
    }
    if (scan->options->one_space && record.space != scan->options->space)
        return 0;
    if (head.header_bytes > 0) {
        record.has_header = 1;
        record.kind = head.kind;
        record.group = head.group;
        record.position = head.position;
        record.n_blocks = head.n_blocks;
        record.slice = head.slice;
        record.digest = head.digest;
    }
    scan->options->record(scan->options->context, &record);
    return 0;
}

static void tell_server(void *context, const kvp_store_directory *directory)
{
    const struct remote_scan *scan = context;
    if (scan->options->directory)
        scan->options->directory(scan->options->context, directory);
}

kvp_status kvpi_remote_scan(const struct kvpi_backend *backend, struct kvpi_url *url,
                            const kvp_store_scan_options *options, char *out_why, size_t why_bytes)
{
    struct remote_scan scan = {.options = options};
    const int has_records = options->depth >= KVP_SCAN_RECORDS && options->record;
    const struct kvpi_walk walk = {
        .n_bytes = options->depth >= KVP_SCAN_HEADERS ? SIZE_MAX : KVPI_RECORD_FIXED,
        .server = tell_server,
        .record = has_records ? tell_record : NULL,
        .context = &scan};
    kvp_status status = kvpi_sha_open(&scan.digester.sha);
    if (status == KVP_OK && options->secret_bytes > 0) {
        status = kvpi_mac_open(&scan.mac, options->secret, options->secret_bytes);
        scan.has_mac = status == KVP_OK;
    }
    if (status == KVP_OK)
        status = backend->walk(url, &walk, out_why, why_bytes);
    else
        kvpi_why(status, out_why, why_bytes, "%s", kvp_status_text(status));
    kvpi_sha_close(&scan.digester.sha);
    if (scan.has_mac)
        kvpi_mac_close(&scan.mac);
    return status;
}

/* ------------------------------------------------------------------------------------- cleaning */

struct remote_clean {
    const kvp_store_match *match;
    kvp_store_cleaned *cleaned;
};

static int is_meant(void *context, const char *name, const uint8_t *bytes, size_t n_bytes)
{
    (void)name;
    const struct remote_clean *clean = context;
    if (!bytes || n_bytes < KVPI_RECORD_FIXED ||
        (clean->match->one_space && kvpi_get64(bytes + AT_SPACE) != clean->match->space))
        return 0;
    const uint64_t written_before = clean->match->written_before;
    if (written_before != UINT64_MAX && kvpi_get64(bytes + AT_WRITTEN) >= written_before)
        return 0;
    clean->cleaned->records++;
    clean->cleaned->bytes += kvpi_get64(bytes + AT_PAYLOAD_BYTES);
    return 1;
}

static void count_server(void *context, const kvp_store_directory *directory)
{
    const struct remote_clean *clean = context;
    clean->cleaned->directories++;
    clean->cleaned->unknown += directory->status != KVP_OK;
}

kvp_status kvpi_remote_clean(const struct kvpi_backend *backend, struct kvpi_url *url,
                             const kvp_store_match *match, kvp_store_cleaned *out_cleaned,
                             char *out_why, size_t why_bytes)
{
    struct remote_clean clean = {match, out_cleaned};
    const struct kvpi_walk walk = {.n_bytes = KVPI_RECORD_FIXED,
                                   .server = count_server,
                                   .record = is_meant,
                                   .context = &clean};
    *out_cleaned = (kvp_store_cleaned){0};
    return backend->walk(url, &walk, out_why, why_bytes);
}
