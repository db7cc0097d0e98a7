/* The parts of a store on servers that need none: what a URL says, which server has which slot, how
 * long records live, and how they are cut. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mocka.h"
#include "store/redis/ages.h"
#include "store/redis/form.h"
#include "store/redis/link/tls.h"
#include "store/redis/redis_map.h"

/* -------------------------------------------------------------------------------------- the URL */

TEST(what_a_url_says_of_its_server)
{
    static const struct {
        const char *path, *host, *user, *password;
        int port, database;
    } good[] = {
        {"//h", "h", "", "", 6379, 0},
        {"//h/", "h", "", "", 6379, 0},
        {"//h:1", "h", "", "", 1, 0},
        {"//h:65535/65535", "h", "", "", 65535, 65535},
        {"//h:00001/00007", "h", "", "", 1, 7},
        {"//:p@h", "h", "", "p", 6379, 0},
        {"//u:p@h:7/3", "h", "u", "p", 7, 3},
        {"//u:a@b:c@h", "h", "u", "a@b:c", 6379, 0},
        {"//%41%7a:%2F%40%25%fF@%68ost", "host", "Az", "/@%\377", 6379, 0},
        {"//[::1]:7", "::1", "", "", 7, 0},
        {"//u:p@[fe80::1]", "fe80::1", "u", "p", 6379, 0},
    };
    struct kvpi_place_of_server place;
    for (unsigned i = 0; i < sizeof good / sizeof *good; i++) {
        assert_int_equal(kvpi_place_read(good[i].path, &place, NULL, 0), KVP_OK);
        assert_string_equal(place.host, good[i].host);
        assert_string_equal(place.user, good[i].user);
        assert_string_equal(place.password, good[i].password);
        assert_fields(place, port, good[i].port, database, good[i].database);
    }
    static const char *const wrong[] = {
        "",           "h",           "/h",     "///h",   "//:1",     "//h:",      "//h:0",
        "//h:000001", "//h:65536",   "//h:1x", "//h/x",  "//h/-1",   "//h/65536", "//h/1/2",
        "//@h",       "//u@h",       "//u:@h", "//u:p@", "//u:%@h",  "//u:%4@h",  "//u:%4g@h",
        "//u:%g4@h",  "//u:p%00q@h", "//[]",   "//[::1", "//[::1]1", "//[::1]:",
    };
    for (unsigned i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char why[300] = "";
        if (kvpi_place_read(wrong[i], &place, why, sizeof why) != KVP_E_ARG)
            fail_msg("%s was accepted", wrong[i]);
        assert_non_null(strstr(why, "redis://USER:PASSWORD@HOST:PORT/DATABASE"));
    }
}

/* The longest host, user and password that there is room for, and one byte more. */
TEST(nothing_of_a_url_is_cut)
{
    static const unsigned most[] = {KVPI_PLACE_SECRET - 1, KVPI_PLACE_SECRET - 1,
                                    KVPI_PLACE_HOST - 1};
    for (unsigned part = 0; part < 3; part++)
        for (unsigned more = 0; more < 2; more++) {
            char long_one[KVPI_PLACE_SECRET + 1] = "";
            char path[4 * KVPI_PLACE_SECRET];
            struct kvpi_place_of_server place;
            memset(long_one, 'x', most[part] + more);
            snprintf(path, sizeof path, "//%s:%s@%s", part == 0 ? long_one : "u",
                     part == 1 ? long_one : "p", part == 2 ? long_one : "h");
            assert_int_equal(kvpi_place_read(path, &place, NULL, 0), more ? KVP_E_ARG : KVP_OK);
            const char *read = part == 0 ? place.user : part == 1 ? place.password : place.host;
            if (!more)
                assert_string_equal(read, long_one);
        }
}

TEST(which_names_are_this_machine)
{
    static const struct {
        const char *host;
        int is_loopback;
    } cases[] = {{"localhost", 1}, {"::1", 1},        {"127.0.0.1", 1}, {"127.9.9.9", 1},
                 {"128.0.0.1", 0}, {"localhost2", 0}, {"::2", 0},       {"1270.test", 0}};
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct kvpi_place_of_server place = {.port = 1};
        snprintf(place.host, sizeof place.host, "%s", cases[i].host);
        assert_int_equal(kvpi_place_is_loopback(&place), cases[i].is_loopback);
    }
}

/* The name of a certificate has to be one that fits, and a certificate has a key. */
TEST(what_a_url_says_of_tls)
{
    char longest[KVPI_PLACE_HOST + 1] = "";
    const struct {
        const char *options, *value;
        const char *why; /* NULL: it is right */
    } cases[] = {
        {"name=", "h", NULL},
        {"name=", "", "name is empty or too long"},
        {"name=", longest, NULL},
        {"cert=", "/nowhere", "cert and key go together"},
        {"key=", "/nowhere", "cert and key go together"},
        {"cert=/nowhere&key=", "/nowhere", "cert \"/nowhere\" cannot be read: "},
        {"ca=", "/nowhere", "ca \"/nowhere\" cannot be read: "},
    };
    memset(longest, 'h', KVPI_PLACE_HOST - 1);
    for (unsigned i = 0; i <= sizeof cases / sizeof *cases; i++) {
        struct kvpi_tls tls = {0};
        struct kvpi_url url;
        char text[400], why[300] = "";
        const unsigned k = i < sizeof cases / sizeof *cases ? i : 2;
        const char *expected = i == k ? cases[k].why : cases[1].why;
        longest[KVPI_PLACE_HOST - 1] = i == k ? 0 : 'h'; /* at last it is too long */
        snprintf(text, sizeof text, "rediss://h?%s%s", cases[k].options, cases[k].value);
        assert_int_equal(kvpi_url_read(text, &url, NULL, 0), KVP_OK);
        assert_int_equal(kvpi_tls_open(&tls, &url, why, sizeof why), expected ? KVP_E_ARG : KVP_OK);
        assert_non_null(strstr(why, expected ? expected : ""));
        if (!expected)
            assert_string_equal(tls.name, cases[k].value);
        kvpi_tls_close(&tls);
    }
}

/* -------------------------------------------------------------------------------------- the map */

static struct kvpi_map map;

/* host NULL: nil. */
static void tell_server(int place, const char *host, long long port)
{
    const struct kvpi_map_at at_host = {3, 0, place}, at_port = {3, 1, place};
    const struct kvpi_map_at at_id = {3, 2, place}, at_name = {4, 1, 3};
    kvpi_map_text(&map, &at_host, host, host ? strlen(host) : 0);
    kvpi_map_number(&map, &at_port, port);
    kvpi_map_text(&map, &at_id, "id", 2);
    kvpi_map_text(&map, &at_name, "other", 5);
}

/* Of a server and its replica. */
static void tell_range(long long first, long long last, const char *host, long long port)
{
    const struct kvpi_map_at at_first = {2, 0, 0}, at_last = {2, 1, 0};
    kvpi_map_number(&map, &at_first, first);
    kvpi_map_number(&map, &at_last, last);
    tell_server(2, host, port);
    tell_server(3, "replica", 9);
}

/* CRC-16/XMODEM of the digits, as other programs compute it. */
TEST(slots_of_tags)
{
    static const struct {
        uint64_t tag;
        uint32_t slot;
    } cases[] = {{0, 13907}, {7, 1716}, {511, 16003}, {123456789, 12739}, {UINT64_MAX, 5255}};
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(kvpi_map_slot(cases[i].tag), cases[i].slot);
}

TEST(a_map_is_read)
{
    static const char *const asked[] = {"asked", "other"};
    for (unsigned i = 0; i < 2; i++) { /* the second one knows nothing of the first */
        kvpi_map_begin(&map, asked[i]);
        tell_range(0, 99, "h", 1);
        tell_range(100, 100, NULL, 65535);
        tell_range(101, 101, "?", 2);
        tell_range(102, 102, "", 2);
        tell_range(16000, 16383, "h", 1);
        if (i == 0)
            tell_range(103, 15999, "?x", 3);
        kvpi_map_end(&map);
        assert_fields(map, state, KVPI_MAP_WHOLE, n_servers, i == 0 ? 4 : 3);
        static const struct {
            unsigned slot, server;
        } slots[] = {{0, 0}, {99, 0}, {100, 1}, {101, 2}, {102, 2}, {16000, 0}, {16383, 0}};
        for (unsigned k = 0; k < sizeof slots / sizeof *slots; k++)
            assert_int_equal(map.of_slot[slots[k].slot], slots[k].server);
        assert_int_equal(map.of_slot[103], i == 0 ? 3 : KVPI_MAP_NONE);
        assert_int_equal(map.of_slot[15999], i == 0 ? 3 : KVPI_MAP_NONE);
        assert_string_equal(map.servers[0].host, "h");
        assert_string_equal(map.servers[1].host, asked[i]);
        assert_string_equal(map.servers[2].host, asked[i]);
        assert_true(map.servers[0].port == 1 && map.servers[1].port == 65535);
    }
}

TEST(a_map_that_is_wrong_is_none)
{
    char longest[KVPI_PLACE_HOST + 1] = "";
    memset(longest, 'h', KVPI_PLACE_HOST - 1);
    const struct {
        long long first, last;
        const char *host;
        long long port;
        int is_right;
    } ranges[] = {
        {0, 16383, "h", 1, 1}, {0, 16384, "h", 1, 0}, {-1, 5, "h", 1, 0},    {6, 5, "h", 1, 0},
        {5, 5, "h", 65536, 0}, {5, 5, "h", 0, 0},     {5, 5, "h h", 1, 0},   {5, 5, "h\177", 1, 0},
        {5, 5, "h\200", 1, 0}, {5, 5, "!~", 1, 1},    {5, 5, longest, 1, 1},
    };
    for (unsigned i = 0; i < sizeof ranges / sizeof *ranges; i++) {
        kvpi_map_begin(&map, "asked");
        tell_range(ranges[i].first, ranges[i].last, ranges[i].host, ranges[i].port);
        kvpi_map_end(&map);
        assert_int_equal(map.state, ranges[i].is_right ? KVPI_MAP_WHOLE : KVPI_MAP_FAILED);
    }
    longest[KVPI_PLACE_HOST - 1] = 'h';
    kvpi_map_begin(&map, "asked");
    tell_range(0, 5, longest, 1);
    kvpi_map_end(&map);
    assert_int_equal(map.state, KVPI_MAP_FAILED);
    kvpi_map_begin(&map, "asked");
    kvpi_map_end(&map); /* of no server */
    assert_int_equal(map.state, KVPI_MAP_FAILED);
    kvpi_map_begin(&map, "asked");
    tell_server(2, "h", 1); /* of no slots */
    kvpi_map_end(&map);
    assert_int_equal(map.state, KVPI_MAP_FAILED);
}

/* Those behind the last one have no slots; what is there has its own. */
TEST(a_map_of_too_many_servers)
{
    kvpi_map_begin(&map, "asked");
    for (int i = 0; i <= KVPI_MAP_SERVERS; i++)
        tell_range(i, i, "h", 1 + i);
    kvpi_map_end(&map);
    assert_fields(map, state, KVPI_MAP_WHOLE, n_servers, KVPI_MAP_SERVERS);
    for (int i = 0; i < KVPI_MAP_SERVERS; i++)
        assert_int_equal(map.of_slot[i], i);
    assert_int_equal(map.of_slot[KVPI_MAP_SERVERS], KVPI_MAP_NONE);
}

/* ----------------------------------------------------------------------------------------- ages */

static kvp_digest key_of(uint64_t first_bytes)
{
    kvp_digest key = {{0}};
    for (int i = 0; i < 8; i++)
        key.bytes[i] = (uint8_t)(first_bytes >> (56 - 8 * i));
    key.bytes[31] = 0xAB;
    return key;
}

static void close_ages(struct kvpi_ages *ages)
{
    kvpi_ages_close(ages);
}

#define scoped_ages ENDED_BY(close_ages) struct kvpi_ages

static void open_ages(struct kvpi_ages *ages)
{
    const kvp_digest fingerprint = key_of(UINT64_C(0x0123456789ABCDEF));
    *ages = (struct kvpi_ages){.base_ms = 3600000, .tags = 512};
    assert_int_equal(kvpi_ages_open(ages, &fingerprint), KVP_OK);
}

TEST(names_of_records)
{
    static const char rest[] = "{10}:0123456789abcdef:000000000000040a"
                               "0000000000000000000000000000000000000000000000ab";
    char name[KVPI_AGES_NAME], expected[KVPI_AGES_NAME];
    scoped_ages ages;
    open_ages(&ages);
    const kvp_digest key = key_of(2 * 512 + 10);
    for (int is_large = 0; is_large < 2; is_large++) {
        ages.is_large = is_large;
        kvpi_ages_name(&ages, &key, name);
        snprintf(expected, sizeof expected, "%s%s", is_large ? "kvp1:h:" : "kvp1:", rest);
        assert_string_equal(name, expected);
    }
    assert_int_equal(kvpi_ages_tag(&ages, &key), 10);
}

/* A second less for each record before it, as of the last whole minute, and a minute at least. */
TEST(times_to_live)
{
    static const struct {
        uint32_t depth;
        uint64_t now_ms, ttl_ms;
    } cases[] = {{0, 0, 3600000},     {0, 60000, 3600000}, {0, 59999, 3540001},
                 {1, 0, 3599000},     {3, 72345, 3584655}, {3539, 999, 60001},
                 {3539, 1001, 60000}, {3540, 0, 60000},    {9999, 59999, 60000}};
    const struct kvpi_ages ages = {.base_ms = 3600000, .tags = 1};
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(kvpi_ages_ttl(&ages, cases[i].depth, cases[i].now_ms), cases[i].ttl_ms);
    const kvp_identity identity = {.position = 96, .n_blocks = 2, .block_tokens = 16};
    assert_int_equal(kvpi_ages_depth(&identity), 3);
}

/* Records of one chain, by number; the first one has no parent. */
static void note(struct kvpi_ages *ages, uint64_t number)
{
    static const kvp_digest none;
    const kvp_identity identity = {.position = (uint32_t)number,
                                   .n_blocks = 1,
                                   .block_tokens = 1,
                                   .parent = number > 1 ? key_of(512 * (number - 1)) : none};
    const struct kvpi_store_op op = {.identity = &identity, .key = key_of(512 * number)};
    kvpi_ages_note(ages, &op);
}

/* What is renewed: so many, from the first of these numbers to the last. */
static void expect_renewal(struct kvpi_ages *ages, uint64_t number, uint64_t now_ms, uint32_t n)
{
    const struct kvpi_age *renewed[KVPI_AGES_CHAIN];
    const kvp_digest key = key_of(512 * number);
    assert_int_equal(kvpi_ages_renew(ages, &key, now_ms, renewed), n);
    for (uint32_t i = 0; i < n; i++)
        assert_int_equal(renewed[i]->depth, number - n + 1 + i);
}

TEST(what_is_renewed)
{
    scoped_ages ages;
    open_ages(&ages);
    expect_renewal(&ages, 1, 60000, 0); /* not known */
    for (uint64_t number = 1; number <= KVPI_AGES_CHAIN + 10; number++)
        note(&ages, number);
    expect_renewal(&ages, 3, 60000, 3);
    expect_renewal(&ages, 3, 119999, 0);
    expect_renewal(&ages, 5, 119999, 2);
    note(&ages, 5); /* is known, and stays as it is */
    expect_renewal(&ages, 5, 119999, 0);
    expect_renewal(&ages, 5, 120000, 5);
    ages.n_lost++;
    expect_renewal(&ages, 4, 120000, 4);
    expect_renewal(&ages, 5, 120000, 1);
    expect_renewal(&ages, KVPI_AGES_CHAIN + 10, 180000, KVPI_AGES_CHAIN);
    const kvp_digest none = {{0}}, written = key_of(512 * 2);
    kvpi_ages_written(&ages, &written, 240000);
    expect_renewal(&ages, 4, 240000, 2);
    const struct kvpi_age *renewed[KVPI_AGES_CHAIN];
    assert_int_equal(kvpi_ages_renew(&ages, &none, 240000, renewed), 0);
}

/* Of two records in one place of the table the newer one is known. */
TEST(what_is_forgotten)
{
    scoped_ages ages;
    open_ages(&ages);
    note(&ages, 1);
    note(&ages, 2);
    note(&ages, 1 + KVPI_AGES_KNOWN);
    expect_renewal(&ages, 2, 60000, 1);
    expect_renewal(&ages, 1, 60000, 0);
    expect_renewal(&ages, 1 + KVPI_AGES_KNOWN, 60000, 1);
}

/* ------------------------------------------------------------------------------------- the form */

/* The piece and its 32 bytes are the largest block of the allocator that they can fill: of four
 * sizes between two powers of two. */
TEST(a_piece_fills_a_block)
{
    for (size_t payload = KVPI_FORM_LARGE; payload < 5 * KVPI_FORM_LARGE; payload += 31) {
        size_t block = 0;
        for (size_t power = KVPI_FORM_LARGE / 2; power <= payload + 32; power *= 2)
            for (size_t quarters = 4; quarters < 8; quarters++)
                if (power / 4 * quarters <= payload + 32)
                    block = power / 4 * quarters;
        assert_int_equal(payload - kvpi_form_rest(payload) + 32, block);
    }
    assert_int_equal(kvpi_form_rest((size_t)2 << 20), 32);
    assert_int_equal(kvpi_form_rest(81920 - 32), 0);
    assert_false(kvpi_form_is_large(KVPI_FORM_LARGE - 1));
    assert_true(kvpi_form_is_large(KVPI_FORM_LARGE));
}

enum {
    HEADER = 64,
    BLOCKS = 3,
    BLOCK = 22016,
    PAYLOAD = BLOCKS * BLOCK,
    RECORD = HEADER + PAYLOAD
};

static uint8_t record[RECORD + 1];
static uint8_t read_bytes[RECORD];

static struct kvpi_store_op empty_op(void)
{
    struct kvpi_store_op op = {.n_spans = 1 + BLOCKS};
    op.spans[0] = (struct kvpi_span){read_bytes, HEADER};
    for (unsigned i = 0; i < BLOCKS; i++)
        op.spans[1 + i] = (struct kvpi_span){read_bytes + HEADER + i * BLOCK, BLOCK};
    for (size_t i = 0; i < sizeof record; i++)
        record[i] = (uint8_t)(1 + i % 251);
    memset(read_bytes, 0xEE, sizeof read_bytes);
    return op;
}

/* The header has so many bytes of the record, and zeros; the blocks are as before. */
static void expect_header_of(const struct kvpi_store_op *op, size_t n)
{
    assert_int_equal(op->is_other_length, 1);
    assert_memory_equal(read_bytes, record, n);
    for (size_t i = n; i < RECORD; i++)
        assert_int_equal(read_bytes[i], i < HEADER ? 0 : 0xEE);
}

TEST(a_record_comes_as_a_string)
{
    struct kvpi_store_op op = empty_op();
    kvpi_form_take(&op, (const char *)record, RECORD);
    assert_int_equal(op.is_other_length, 0);
    assert_memory_equal(read_bytes, record, RECORD);
    static const size_t others[] = {0, 10, HEADER, RECORD - 1, RECORD + 1};
    for (unsigned i = 0; i < sizeof others / sizeof *others; i++) {
        op = empty_op();
        kvpi_form_take(&op, (const char *)record, others[i]);
        expect_header_of(&op, others[i] < HEADER ? others[i] : HEADER);
    }
}

TEST(a_record_comes_in_fields)
{
    const size_t rest = kvpi_form_rest(PAYLOAD);
    const size_t begins[] = {0, HEADER, HEADER + rest, RECORD};
    struct kvpi_store_op op = empty_op();
    for (int field = 0; field < KVPI_FORM_FIELDS; field++)
        kvpi_form_take_field(&op, field, (const char *)record + begins[field],
                             begins[field + 1] - begins[field]);
    assert_int_equal(op.is_other_length, 0);
    assert_memory_equal(read_bytes, record, RECORD);
    for (int more = -1; more <= 1; more += 2) {
        op = empty_op();
        kvpi_form_take_field(&op, 0, (const char *)record, (size_t)(HEADER + more));
        expect_header_of(&op, more < 0 ? HEADER - 1 : HEADER);
        for (int field = 1; field < KVPI_FORM_FIELDS; field++) {
            op = empty_op();
            kvpi_form_take_field(&op, field, (const char *)record,
                                 begins[field + 1] - begins[field] + (size_t)more);
            assert_int_equal(op.is_other_length, 1);
            for (size_t i = 0; i < RECORD; i++)
                assert_int_equal(read_bytes[i], 0xEE);
        }
    }
}

TEST_MAIN(NULL, NULL)
