/* Records on servers, as operators see them: judged by their headers and names, and cleaned. What
 * the servers have is a table. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mocka.h"
#include "store/identity/identity_bytes.h"
#include "store/load/remote.h"
#include "store_records.h"

enum { HEADER = 4096, RECORD = HEADER + BLOCK_BYTES, WRITTEN = 5000, SPACE = 7 };

static const char secret[] = "0123456789abcdef";

/* What a server has: the same record under the same name, but for what a case changes. */
struct kept {
    struct kvpi_place place;
    unsigned has_code : 1, is_gone : 1;
    int flipped; /* the byte with this number; 0: none */
    struct {
        uint32_t at, value;
    } put32;         /* in the header; at 0: nothing */
    size_t n_bytes;  /* 0: all */
    int name_digit;  /* from the end of the name, from 1; 0: none is changed */
    size_t name_cut; /* from its beginning */
};

static const struct kept *kept;
static unsigned n_kept;
static unsigned n_meant; /* to go */
static struct record record;

static void make_name(char out[120])
{
    int n = sprintf(out, "kvp1:{10}:");
    for (int i = 0; i < 8; i++)
        n += sprintf(out + n, "%02x", record.identity.fingerprint.bytes[i]);
    n += sprintf(out + n, ":");
    for (int i = 0; i < 32; i++)
        n += sprintf(out + n, "%02x", record.key.bytes[i]);
}

static void make_bytes(const struct kept *one, uint8_t out[RECORD + 1])
{
    struct kvpi_mac mac = {0};
    const struct kvpi_span payload = {record.kv, BLOCK_BYTES};
    assert_int_equal(kvpi_mac_open(&mac, secret, 16), KVP_OK);
    assert_int_equal(kvpi_record_write(&record.identity, &one->place, &payload, 1,
                                       one->has_code ? &mac : NULL, HEADER, out),
                     KVP_OK);
    kvpi_mac_close(&mac);
    memcpy(out + HEADER, record.kv, BLOCK_BYTES);
    out[RECORD] = 0;
    if (one->flipped)
        out[one->flipped] ^= 1;
    if (one->put32.at)
        kvpi_put32(out + one->put32.at, one->put32.value);
}

/* Three servers, one of which cannot be reached. */
static kvp_status walk_table(struct kvpi_url *url, const struct kvpi_walk *walk, char *out_why,
                             size_t why_bytes)
{
    const kvp_store_directory servers[] = {{.status = KVP_OK, .why = ""},
                                           {.status = KVP_E_IO, .why = "away"},
                                           {.status = KVP_OK, .why = ""}};
    (void)url;
    (void)out_why;
    (void)why_bytes;
    for (int i = 0; i < 3; i++)
        walk->server(walk->context, &servers[i]);
    for (unsigned i = 0; i < n_kept && walk->record; i++) {
        uint8_t *bytes = malloc(RECORD + 1);
        char name[120];
        size_t n = kept[i].n_bytes ? kept[i].n_bytes : RECORD;
        assert_non_null(bytes);
        make_bytes(&kept[i], bytes);
        make_name(name);
        if (kept[i].name_digit)
            name[strlen(name) - (size_t)kept[i].name_digit] ^= 1;
        n = n < walk->n_bytes ? n : walk->n_bytes;
        n_meant += walk->record(walk->context, name + kept[i].name_cut,
                                kept[i].is_gone ? NULL : bytes, n) != 0;
        free(bytes);
    }
    return KVP_OK;
}

static const struct kvpi_backend table = {.walk = walk_table};

/* ------------------------------------------------------------------------------------- scanning */

static kvp_store_record told;
static unsigned n_told, n_servers;

static void take_record(void *context, const kvp_store_record *one)
{
    (void)context;
    told = *one;
    n_told++;
}

static void take_server(void *context, const kvp_store_directory *server)
{
    (void)context;
    (void)server;
    n_servers++;
}

static kvp_store_scan_options options_of(uint32_t depth)
{
    kvp_store_scan_options options;
    kvp_store_scan_options_init(&options);
    options.depth = depth;
    options.record = take_record;
    options.directory = take_server;
    return options;
}

static void scan(const struct kept *one, const kvp_store_scan_options *options)
{
    kept = one;
    n_kept = 1;
    n_told = n_servers = n_meant = 0;
    memset(&told, 0, sizeof told);
    assert_int_equal(kvpi_remote_scan(&table, NULL, options, NULL, 0), KVP_OK);
    assert_int_equal(n_servers, 3);
    assert_int_equal(n_meant, 0);
}

static int set_up(void **state)
{
    (void)state;
    record_make(&record, 0, 0, SPACE);
    record.identity.position = 3 * TOKENS;
    record.identity.parent = input_digest(9);
    record.identity.slice = (kvp_slice){1, 2, 3, 4};
    record.key = input_key(&record.identity);
    return 0;
}

TEST_WITH(each_fault_is_told, set_up, NULL)
{
    enum { AT_HEADER_BYTES = 16, AT_KIND = 208, KEY = 64, MODEL = 16 };
    static const struct {
        struct kept kept;
        uint32_t header, payload; /* what is found when so much is read */
    } cases[] = {
        {{.place.slot = 0}, KVP_FOUND_GOOD, KVP_FOUND_GOOD},
        {{.has_code = 1}, KVP_FOUND_GOOD, KVP_FOUND_GOOD},
        {{.is_gone = 1}, KVP_FOUND_RACED, KVP_FOUND_RACED},
        {{.n_bytes = 255}, KVP_BAD_DAMAGED, KVP_BAD_DAMAGED},
        {{.n_bytes = 256}, KVP_BAD_DAMAGED, KVP_BAD_DAMAGED},
        {{.flipped = 100}, KVP_BAD_DAMAGED, KVP_BAD_DAMAGED},
        {{.put32 = {AT_HEADER_BYTES, 255}}, KVP_BAD_DAMAGED, KVP_BAD_DAMAGED},
        {{.put32 = {AT_HEADER_BYTES, RECORD + 1}}, KVP_BAD_DAMAGED, KVP_BAD_DAMAGED},
        {{.place.slot = 1}, KVP_BAD_PLACE, KVP_BAD_PLACE},
        {{.place.generation = 1}, KVP_BAD_PLACE, KVP_BAD_PLACE},
        {{.n_bytes = RECORD - 1}, KVP_BAD_LENGTH, KVP_BAD_LENGTH},
        {{.n_bytes = RECORD + 1}, KVP_BAD_LENGTH, KVP_BAD_LENGTH},
        {{.n_bytes = HEADER}, KVP_BAD_LENGTH, KVP_BAD_LENGTH},
        {{.name_digit = 1}, KVP_BAD_IDENTITY, KVP_BAD_IDENTITY},
        {{.name_digit = KEY}, KVP_BAD_IDENTITY, KVP_BAD_IDENTITY},
        {{.name_digit = KEY + 2}, KVP_BAD_IDENTITY, KVP_BAD_IDENTITY},
        {{.name_digit = KEY + 1 + MODEL}, KVP_BAD_IDENTITY, KVP_BAD_IDENTITY},
        {{.name_digit = KEY + 3 + MODEL}, KVP_FOUND_GOOD, KVP_FOUND_GOOD},
        {{.name_cut = 10}, KVP_FOUND_GOOD, KVP_FOUND_GOOD},
        {{.name_cut = 11}, KVP_BAD_IDENTITY, KVP_BAD_IDENTITY},
        {{.name_cut = 10 + MODEL + 2}, KVP_BAD_IDENTITY, KVP_BAD_IDENTITY},
        {{.flipped = HEADER}, KVP_FOUND_GOOD, KVP_BAD_PAYLOAD},
        {{.flipped = RECORD - 1}, KVP_FOUND_GOOD, KVP_BAD_PAYLOAD},
    };
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++)
        for (uint32_t depth = KVP_SCAN_HEADERS; depth <= KVP_SCAN_PAYLOADS; depth++) {
            const kvp_store_scan_options options = options_of(depth);
            scan(&cases[i].kept, &options);
            assert_int_equal(n_told, 1);
            const uint32_t found = depth == KVP_SCAN_HEADERS ? cases[i].header : cases[i].payload;
            if (told.found != found)
                fail_msg("%u: %s", i, kvp_found_name(told.found));
        }
}

TEST_WITH(codes_are_verified_with_the_secret, set_up, NULL)
{
    const struct kept without = {.place.written = WRITTEN}, with = {.has_code = 1};
    kvp_store_scan_options options = options_of(KVP_SCAN_PAYLOADS);
    options.secret = secret;
    options.secret_bytes = 16;
    scan(&with, &options);
    assert_int_equal(told.found, KVP_FOUND_GOOD);
    scan(&without, &options);
    assert_int_equal(told.found, KVP_BAD_CODE);
    options.secret = "0123456789abcdeF";
    scan(&with, &options);
    assert_int_equal(told.found, KVP_BAD_CODE);
}

TEST_WITH(what_is_told_of_a_record, set_up, NULL)
{
    const struct kept good = {.place.written = WRITTEN};
    for (uint32_t depth = KVP_SCAN_DIRECTORIES; depth <= KVP_SCAN_HEADERS; depth++) {
        const kvp_store_scan_options options = options_of(depth);
        scan(&good, &options);
        assert_int_equal(n_told, depth > KVP_SCAN_DIRECTORIES);
        if (n_told == 0)
            continue;
        assert_fields(told, space, SPACE, written, WRITTEN, payload_bytes, BLOCK_BYTES, parent,
                      UINT32_MAX, has_header, depth == KVP_SCAN_HEADERS);
        if (depth < KVP_SCAN_HEADERS) {
            assert_int_equal(told.found, KVP_FOUND_UNREAD);
            continue;
        }
        assert_fields(told, kind, KVP_IDENTITY_TOKENS, group, 0, position, 3 * TOKENS, n_blocks, 1);
        assert_memory_equal(&told.slice, &record.identity.slice, sizeof told.slice);
        assert_memory_equal(&told.digest, &record.identity.digest, sizeof told.digest);
    }
    kvp_store_scan_options options = options_of(KVP_SCAN_HEADERS);
    options.one_space = 1;
    for (options.space = SPACE - 1; options.space <= SPACE + 1; options.space++) {
        scan(&good, &options);
        assert_int_equal(n_told, options.space == SPACE);
    }
    options = options_of(KVP_SCAN_HEADERS);
    options.record = NULL;
    scan(&good, &options);
    assert_int_equal(n_told, 0);
    options.directory = NULL;
    assert_int_equal(kvpi_remote_scan(&table, NULL, &options, NULL, 0), KVP_OK);
}

/* ------------------------------------------------------------------------------------- cleaning */

TEST_WITH(what_is_cleaned, set_up, NULL)
{
    static const struct kept all[] = {{.place.written = WRITTEN},
                                      {.place.written = WRITTEN + 1},
                                      {.is_gone = 1},
                                      {.n_bytes = KVPI_RECORD_FIXED - 1},
                                      {.place.written = WRITTEN, .n_bytes = KVPI_RECORD_FIXED}};
    static const struct {
        kvp_store_match match;
        unsigned n;
    } cases[] = {
        {{.written_before = UINT64_MAX}, 3},
        {{.written_before = UINT64_MAX, .one_space = 1, .space = SPACE}, 3},
        {{.written_before = UINT64_MAX, .one_space = 1, .space = SPACE + 1}, 0},
        {{.written_before = UINT64_MAX, .space = SPACE + 1}, 3},
        {{.written_before = WRITTEN}, 0},
        {{.written_before = WRITTEN + 1}, 2},
        {{.written_before = WRITTEN + 2}, 3},
    };
    kept = all;
    n_kept = sizeof all / sizeof *all;
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        kvp_store_cleaned cleaned;
        memset(&cleaned, 0xEE, sizeof cleaned);
        n_meant = 0;
        assert_int_equal(kvpi_remote_clean(&table, NULL, &cases[i].match, &cleaned, NULL, 0),
                         KVP_OK);
        assert_int_equal(n_meant, cases[i].n);
        assert_fields(cleaned, records, cases[i].n, bytes, cases[i].n * BLOCK_BYTES, directories, 3,
                      unknown, 1, in_use, 0);
    }
}

TEST_MAIN(NULL, NULL)
