/* The files of a directory, one by one, on a disk in memory: what of a log's header is refused,
 * what a call leaves that fails, and what a reader takes that others cut, lengthened or damaged. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "mocka.h"
#include "sim_disk.h"
#include "store/file/home.h"
#include "store/file/log.h"
#include "store/file/recover.h"
#include "store/file/slabs.h"
#include "store/identity/identity_bytes.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))
#define LOG          "/kv/log"

static struct sim_disk *sim;
static struct kvpi_disk below;
static struct kvpi_disk disk;

static const struct kvpi_log_form form = {.slot_bytes = 8192,
                                          .header_bytes = 4096,
                                          .record_blocks = 1,
                                          .block_tokens = 4,
                                          .slab_slots = 2,
                                          .n_slots = 6};

static void begin(void)
{
    sim = sim_disk_create(1);
    below = disk = sim_disk_interface(sim);
}

/* Nothing is open any more. */
static void end(void)
{
    assert_int_equal(sim_disk_handles(sim), 0);
    sim_disk_destroy(sim);
}

/* -------------------------------------------------------------------------------- logs: headers */

/* A header is 64 bytes, with the sum of the first 56 in the last 8. */
static void change_header(unsigned at, unsigned n_bytes, uint64_t value, int with_sum)
{
    uint8_t header[64];
    assert_true(sim_disk_peek(sim, LOG, 0, header, sizeof header));
    for (unsigned i = 0; i < n_bytes; i++)
        header[at + i] = (uint8_t)(value >> 8 * i);
    if (with_sum)
        kvpi_put64(header + 56, XXH3_64bits(header, 56));
    assert_true(sim_disk_poke(sim, LOG, 0, header, sizeof header));
}

/* The longest path that there is room for; a longer one is none. */
TEST(test_paths_are_not_cut)
{
    static char directory[KVPI_PATH_BYTES + 1];
    char path[KVPI_PATH_BYTES];
    for (size_t n = KVPI_PATH_BYTES - 3; n <= KVPI_PATH_BYTES; n++) {
        memset(directory, 'd', n);
        kvpi_path_join(path, directory, "f"); /* two bytes more */
        assert_int_equal(strlen(path), n + 2 < KVPI_PATH_BYTES ? n + 2 : 0);
        kvpi_path_copy(path, directory);
        assert_int_equal(strlen(path), n < KVPI_PATH_BYTES ? n : 0);
    }
}

TEST(test_headers)
{
    static const struct {
        unsigned at, n_bytes;
        uint64_t value;
        int with_sum;
        kvp_status expected;
    } rows[] = {
        {0, 0, 0, 1, KVP_OK},
        {0, 8, 0, 1, KVP_E_FORMAT},   /* magic */
        {8, 4, 2, 1, KVP_E_VERSION},  /* version */
        {8, 4, 2, 0, KVP_E_VERSION},  /* whatever its header looks like */
        {12, 4, 51, 1, KVP_E_FORMAT}, /* bytes of an entry */
        {16, 8, 7, 0, KVP_E_FORMAT},  /* id: not what was summed up */
        {16, 8, 7, 1, KVP_OK},
        {24, 8, 0, 1, KVP_E_FORMAT},       /* bytes of a slot */
        {24, 8, INT64_MAX / 6, 1, KVP_OK}, /* 6 slots end at 2^63 - 1 at most */
        {24, 8, INT64_MAX / 6 + 1, 1, KVP_E_FORMAT},
        {44, 4, 0, 1, KVP_E_FORMAT}, /* slots of a slab */
        {44, 4, 6, 1, KVP_OK},
        {44, 4, 7, 1, KVP_E_FORMAT}, /* more than all */
        {48, 4, 0, 1, KVP_E_FORMAT}, /* slots */
        {48, 4, INT32_MAX, 1, KVP_OK},
        {48, 4, UINT64_C(1) << 31, 1, KVP_E_FORMAT}, /* no slot is NONE, or outside */
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct kvpi_log log;
        begin();
        assert_int_equal(kvpi_log_create(&log, &disk, LOG, &form, 5), 0);
        kvpi_log_close(&log);
        change_header(rows[i].at, rows[i].n_bytes, rows[i].value, rows[i].with_sum);
        const kvp_status status = kvpi_log_open(&log, &disk, LOG, 0);
        if (status != rows[i].expected)
            fail_msg("row %zu: %s", i, kvp_status_name(status));
        if (status == KVP_OK) {
            assert_int_equal(log.n_entries, 0); /* a header and nothing else is a log */
            kvpi_log_close(&log);
        }
        sim_disk_cut(sim, LOG, 63);
        assert_int_equal(kvpi_log_open(&log, &disk, LOG, 0), KVP_E_FORMAT);
        end();
    }
}

/* ------------------------------------------------------------------------------ calls that fail */

/* What fails leaves no file behind, and nothing open. */
TEST(test_a_log_that_cannot_be_made)
{
    struct kvpi_log log;
    begin();
    sim_disk_limit(sim, 1000);
    assert_int_equal(kvpi_log_prepare(&log, &disk, LOG, 100), ENOSPC);
    assert_false(sim_disk_has(sim, LOG));
    sim_disk_limit(sim, 0);
    assert_int_equal(kvpi_log_create(&log, &disk, LOG, &form, 5), ENOSPC);
    assert_false(sim_disk_has(sim, LOG));
    sim_disk_stop_after(sim, 0);
    assert_int_equal(kvpi_log_prepare(&log, &disk, LOG, 0), EIO);
    end();
}

static unsigned n_reserved;

static int count_reserve(void *context, int file, uint64_t bytes)
{
    n_reserved++;
    return below.reserve(context, file, bytes);
}

/* A disk that cannot is asked once for each log. */
TEST(test_a_disk_that_reserves_nothing)
{
    struct kvpi_log log;
    begin();
    sim_disk_refuse_reserve(sim);
    disk.reserve = count_reserve;
    n_reserved = 0;
    assert_int_equal(kvpi_log_prepare(&log, &disk, LOG, 10), 0);
    for (uint64_t n = 10; n < 1000; n += 10)
        assert_int_equal(kvpi_log_reserve(&log, n), 0);
    assert_int_equal(n_reserved, 1);
    kvpi_log_close(&log);
    end();
}

/* -------------------------------------------------------------------------------- logs: entries */

enum { ENTRIES = 2500 }; /* of which 1,024 are read, or gathered, at a time */

static struct kvpi_log_entry entry_of(uint32_t n)
{
    struct kvpi_log_entry entry = {.kind = n % 3 ? KVPI_LOG_PUT : KVPI_LOG_DROP,
                                   .slot = n,
                                   .generation = n + 1,
                                   .parent = n + 2,
                                   .parent_generation = n + 3,
                                   .written = n + 4,
                                   .space = n + UINT64_C(5) * 1000000007};
    memset(entry.key, (int)(n & 0xFF), sizeof entry.key);
    return entry;
}

static struct kvpi_log begin_log(void)
{
    struct kvpi_log log;
    begin();
    assert_int_equal(kvpi_log_create(&log, &disk, LOG, &form, 5), 0);
    return log;
}

static void append(struct kvpi_log *log, uint32_t first, uint32_t end)
{
    for (uint32_t n = first; n < end; n++) {
        const struct kvpi_log_entry entry = entry_of(n);
        assert_int_equal(kvpi_log_append(log, &entry), 0);
    }
}

static uint32_t n_seen;

/* They come in order, each once. */
static void see(void *context, const struct kvpi_log_entry *entry)
{
    const struct kvpi_log_entry expected = entry_of(n_seen++);
    (void)context;
    assert_fields(*entry, kind, expected.kind, slot, expected.slot, generation, expected.generation,
                  parent, expected.parent);
    assert_fields(*entry, parent_generation, expected.parent_generation, written, expected.written,
                  space, expected.space);
    assert_memory_equal(entry->key, expected.key, sizeof expected.key);
}

static int read_log(struct kvpi_log *log, uint64_t from, uint64_t *out_next)
{
    uint64_t n_damaged = 0;
    const int error = kvpi_log_read(log, from, UINT64_MAX, see, NULL, out_next, &n_damaged);
    assert_int_equal(n_damaged, 0);
    return error;
}

/* An entry that could not be written is as if it had not been: the next one takes its place. */
TEST(test_an_entry_that_is_not_written)
{
    struct kvpi_log log = begin_log();
    uint64_t next;
    append(&log, 0, 3);
    sim_disk_fail_write(sim, 1, EIO);
    const struct kvpi_log_entry entry = entry_of(77);
    assert_int_equal(kvpi_log_append(&log, &entry), EIO);
    assert_int_equal(log.n_entries, 3);
    append(&log, 3, 5);
    n_seen = 0;
    assert_int_equal(read_log(&log, 0, &next), 0);
    assert_true(next == 5 && n_seen == 5);
    kvpi_log_close(&log);
    end();
}

/* Gathered ones are written when the buffer is full, and by the flush: a failure of either is told
 * by that call. */
TEST(test_entries_that_are_gathered)
{
    for (unsigned fails = 0; fails <= 3; fails++) { /* 0: none; the n-th write */
        static uint8_t buffer[KVPI_LOG_BUFFER];
        struct kvpi_log log = begin_log();
        uint64_t next;
        unsigned n_writes = 0;
        log.buffer = buffer;
        sim_disk_fail_write(sim, fails, ENOSPC);
        for (uint32_t n = 0; n < ENTRIES; n++) {
            const struct kvpi_log_entry entry = entry_of(n);
            n_writes += n % 1024 == 1023;
            const int fails_now = n % 1024 == 1023 && n_writes == fails;
            assert_int_equal(kvpi_log_append(&log, &entry), fails_now ? ENOSPC : 0);
        }
        assert_int_equal(kvpi_log_flush(&log), fails == 3 ? ENOSPC : 0);
        assert_int_equal(kvpi_log_flush(&log), 0); /* nothing is left */
        n_seen = 0;
        if (fails == 0) {
            assert_int_equal(read_log(&log, 0, &next), 0);
            assert_true(next == ENTRIES && n_seen == ENTRIES);
        }
        kvpi_log_close(&log);
        end();
    }
}

static unsigned fails_read;

static int fail_read(void *context, int file, const struct kvpi_span *spans, uint32_t n_spans,
                     uint64_t offset)
{
    return fails_read > 0 && --fails_read == 0 ? EIO
                                               : below.read(context, file, spans, n_spans, offset);
}

/* Who reads on after a failure misses nothing, and who has read more than there is by now (the log
 * is another one, or was cut) reads nothing. */
TEST(test_entries_that_cannot_be_read)
{
    struct kvpi_log log = begin_log();
    uint64_t next;
    append(&log, 0, ENTRIES);
    disk.read = fail_read;
    for (unsigned fails = 1; fails <= 3; fails++) {
        n_seen = 0;
        fails_read = fails;
        assert_int_equal(read_log(&log, 0, &next), EIO);
        assert_int_equal(log.error, EIO);
        assert_true(next == (fails - 1) * 1024 && n_seen == next);
        assert_int_equal(read_log(&log, next, &next), 0);
        assert_true(next == ENTRIES && n_seen == ENTRIES);
        assert_int_equal(log.error, 0);
    }
    uint64_t n_damaged = 0;
    assert_int_equal(kvpi_log_read(&log, ENTRIES + 1, 10, see, NULL, &next, &n_damaged), 0);
    assert_true(next == ENTRIES + 1 && n_seen == ENTRIES && n_damaged == 0);
    kvpi_log_close(&log);
    end();
}

/* ------------------------------------------------------------------------------------- recovery */

enum { SLOTS = 6, THERE = 5 }; /* slots of the index, and those that the slabs have */

#define ROOT    KVPI_INDEX_NONE
#define OUTSIDE (KVPI_INDEX_OUTSIDE | 77)

struct line {
    char kind; /* P, D; 0: no more */
    uint32_t slot;
    uint32_t generation;
    char key;
    uint32_t parent;
    uint32_t parent_generation;
};

/* Logs, and what each slot has then: a record's letter, or "." for none. */
static const struct {
    const char *what;
    struct line lines[6];
    const char *expected;
    uint32_t generations[SLOTS];
} logs[] = {
    {"a chain", {{'P', 0, 1, 'a', ROOT, 0}, {'P', 1, 1, 'b', 0, 1}}, "ab....", {1, 1}},
    {"a child that ended first",
     {{'P', 1, 1, 'b', 0, 1}, {'P', 2, 1, 'c', 1, 1}, {'P', 0, 1, 'a', ROOT, 0}},
     "abc...",
     {1, 1, 1}},
    {"a parent that was dropped",
     {{'P', 0, 1, 'a', ROOT, 0},
      {'P', 1, 1, 'b', 0, 1},
      {'P', 2, 1, 'c', 1, 1},
      {'D', 0, 1, 0, 0, 0}},
     "......",
     {1, 1, 1}},
    {"a parent whose slot has another record",
     {{'P', 0, 1, 'a', ROOT, 0}, {'P', 1, 1, 'b', 0, 1}, {'P', 0, 2, 'c', ROOT, 0}},
     "c.....",
     {2, 1}},
    {"an older record in a newer one's slot",
     {{'P', 0, 2, 'a', ROOT, 0}, {'P', 0, 1, 'b', ROOT, 0}, {'D', 0, 1, 0, 0, 0}},
     "a.....",
     {2}},
    {"the same slot many times",
     {{'P', 0, 1, 'a', ROOT, 0},
      {'P', 1, 1, 'b', ROOT, 0},
      {'D', 0, 1, 0, 0, 0},
      {'P', 0, 2, 'c', ROOT, 0},
      {'D', 1, 1, 0, 0, 0},
      {'P', 1, 2, 'd', 0, 2}},
     "cd....",
     {2, 2}},
    {"a second copy: the first in the log counts, and what is behind the other is left out",
     {{'P', 3, 1, 'a', ROOT, 0}, {'P', 1, 1, 'a', ROOT, 0}, {'P', 2, 1, 'b', 1, 1}},
     "...a..",
     {0, 1, 1, 1}},
    {"a circle, and what is behind it",
     {{'P', 0, 1, 'a', 1, 1},
      {'P', 1, 1, 'b', 0, 1},
      {'P', 2, 1, 'c', 1, 1},
      {'P', 3, 1, 'd', 3, 1},
      {'P', 4, 1, 'e', ROOT, 0}},
     "....e.",
     {1, 1, 1, 1, 1}},
    {"a parent that there cannot be",
     {{'P', 0, 1, 'a', SLOTS, 1}, {'P', 1, 1, 'b', 4, 0}, {'P', 2, 1, 'c', 0, 1}},
     "......",
     {1, 1, 1}},
    {"another writer's parent",
     {{'P', 0, 1, 'a', OUTSIDE, 0}, {'P', 1, 1, 'b', 0, 1}},
     "ab....",
     {1, 1}},
    {"slots that are gone, and that never were",
     {{'P', 4, 3, 'a', ROOT, 0},
      {'P', 5, 2, 'b', ROOT, 0},
      {'P', 3, 1, 'c', 5, 2},
      {'P', 6, 1, 'd', ROOT, 0},
      {'D', 6, 1, 0, 0, 0}},
     "....a.",
     {0, 0, 0, 1, 3, 2}},
    {"generation 0, which no slot has",
     {{'P', 0, 0, 'a', ROOT, 0}, {'P', 1, 1, 'b', 0, 0}},
     "......",
     {0, 1}},
};

static void append_line(struct kvpi_log *log, const struct line *line)
{
    struct kvpi_log_entry entry = {.kind = line->kind == 'P' ? KVPI_LOG_PUT : KVPI_LOG_DROP,
                                   .slot = line->slot,
                                   .generation = line->generation,
                                   .parent = line->parent,
                                   .parent_generation = line->parent_generation,
                                   .written = 7,
                                   .space = 9};
    memset(entry.key, line->key, sizeof entry.key);
    assert_int_equal(kvpi_log_append(log, &entry), 0);
}

TEST(test_what_a_log_says)
{
    for (size_t i = 0; i < COUNT(logs); i++) {
        struct kvpi_log log = begin_log();
        struct kvpi_index index;
        uint64_t n_damaged = 99;
        for (size_t n = 0; n < COUNT(logs[i].lines) && logs[i].lines[n].kind; n++)
            append_line(&log, &logs[i].lines[n]);
        assert_int_equal(kvpi_index_open(&index, SLOTS), KVP_OK);
        assert_int_equal(kvpi_recover(&log, &index, THERE, &n_damaged), KVP_OK);
        assert_int_equal(n_damaged, 0);
        for (uint32_t s = 0; s < SLOTS; s++) {
            const struct kvpi_entry *e = &index.entries[s];
            const char found = e->state == KVPI_ENTRY_READY ? (char)e->key[0] : '.';
            if (found != logs[i].expected[s] || e->generation != logs[i].generations[s])
                fail_msg("%s: slot %u has %c, generation %u", logs[i].what, s, found,
                         e->generation);
            if (found != '.')
                assert_true(e->written == 7 && kvpi_index_space(&index, s) == 9);
        }
        kvpi_index_close(&index);
        kvpi_log_close(&log);
        end();
    }
}

/* ---------------------------------------------------------------------------------------- slabs */

enum { SLOT = 8192, SLAB = 2 * SLOT };

static void slab_path(unsigned number, char out[32])
{
    snprintf(out, 32, "/kv/slab-%06u", number);
}

static int has_slab(unsigned number)
{
    char path[32];
    slab_path(number, path);
    return sim_disk_has(sim, path);
}

/* A file of so many bytes, behind the back of the one who has opened the slabs. */
static void make_slab(unsigned number, uint64_t n_bytes)
{
    char path[32];
    int file;
    slab_path(number, path);
    assert_int_equal(below.open(below.context, path, KVPI_DISK_WRITE | KVPI_DISK_CREATE, &file), 0);
    assert_int_equal(below.allot(below.context, file, n_bytes), 0);
    below.close(below.context, file);
}

static int open_slabs(struct kvpi_slabs *slabs, uint32_t n_slots, int writable)
{
    struct kvpi_log_form of = form;
    of.n_slots = n_slots;
    return kvpi_slabs_open(slabs, &disk, "/kv", &of, writable);
}

TEST(test_how_long_slabs_are)
{
    static const struct {
        uint64_t slot_bytes;
        uint32_t n_slots, expected;
    } rows[] = {
        {8192, 1 << 20, 8192},       /* 64 MiB */
        {8192, 1 << 21, 8192},       /* of which there are 256 */
        {8192, 1 << 28, 1 << 20},    /* longer, or there would be 32,768 */
        {8192, 65536, 8192},         /* an eighth */
        {8192, 65528, 8191},         /* an eighth is less */
        {8192, 7, 1},                /* one at least */
        {UINT64_C(1) << 26, 100, 1}, /* 64 MiB are one slot */
        {UINT64_C(1) << 40, 2560, 10},
    };
    for (size_t i = 0; i < COUNT(rows); i++)
        assert_int_equal(kvpi_slab_slots(rows[i].slot_bytes, rows[i].n_slots), rows[i].expected);
}

/* What is there when files have any length: what is whole, up to the length of a slab; a writer
 * gives each but the last its full length. */
TEST(test_slabs_of_any_length)
{
    static const struct {
        uint64_t bytes[3];  /* of the slabs */
        uint32_t n_read;    /* slots that a reader finds */
        uint32_t n_written; /* that a writer has */
        uint32_t n_left;    /* that it can add at once */
    } rows[] = {
        {{SLAB, SLAB, SLAB}, 6, 6, 0},
        {{SLAB, SLAB, SLOT}, 5, 5, 1},
        {{SLAB, SLAB, SLAB - 1}, 5, 5, 1},
        {{SLAB, SLAB, SLOT - 1}, 4, 4, 2},
        {{SLAB, SLAB, 0}, 4, 4, 2},
        {{SLAB, SLAB, SLAB + 1}, 6, 6, 0},
        {{SLAB, SLAB, 9 * SLOT}, 6, 6, 0}, /* too long */
        {{9 * SLOT, SLAB, SLOT}, 5, 5, 1},
        {{SLAB, SLOT, SLOT}, 4, 5, 1}, /* one that another one follows is full */
        {{0, SLAB, SLAB}, 0, 6, 0},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct kvpi_slabs slabs;
        uint32_t n_read = 0;
        begin();
        for (unsigned s = 0; s < 3; s++)
            make_slab(s, rows[i].bytes[s]);
        assert_int_equal(open_slabs(&slabs, 6, 0), 0);
        for (uint32_t slot = 0; slot < 8; slot++)
            n_read += kvpi_slabs_has(&slabs, slot) != 0;
        kvpi_slabs_close(&slabs);
        assert_int_equal(open_slabs(&slabs, 6, 1), 0);
        if (n_read != rows[i].n_read || kvpi_slabs_slots(&slabs) != rows[i].n_written ||
            kvpi_slabs_left(&slabs) != rows[i].n_left)
            fail_msg("row %zu: %u, %u, %u", i, n_read, kvpi_slabs_slots(&slabs),
                     kvpi_slabs_left(&slabs));
        kvpi_slabs_close(&slabs);
        end();
    }
}

/* A reader sees what the writer adds, in whatever pieces. */
TEST(test_slabs_that_grow)
{
    struct kvpi_slabs slabs;
    begin();
    make_slab(0, 0);
    assert_int_equal(open_slabs(&slabs, 6, 0), 0);
    assert_int_equal(slabs.n_slabs, 0); /* not a slot of it is there */
    make_slab(0, SLOT);
    assert_int_equal(kvpi_slabs_follow(&slabs), 0);
    assert_true(kvpi_slabs_has(&slabs, 0) && !kvpi_slabs_has(&slabs, 1));
    make_slab(0, SLAB);
    make_slab(1, SLAB);
    assert_true(kvpi_slabs_has(&slabs, 1) && !kvpi_slabs_has(&slabs, 2));
    assert_int_equal(kvpi_slabs_follow(&slabs), 0);
    assert_true(kvpi_slabs_has(&slabs, 3));
    kvpi_slabs_close(&slabs);
    end();
}

/* A smaller size: all slabs behind it go. */
TEST(test_slabs_behind_the_size)
{
    for (uint32_t n_slots = 2; n_slots <= 6; n_slots += 2) {
        struct kvpi_slabs slabs;
        begin();
        for (unsigned s = 0; s < 3; s++)
            make_slab(s, SLAB);
        assert_int_equal(open_slabs(&slabs, n_slots, 0), 0); /* a reader removes nothing */
        kvpi_slabs_close(&slabs);
        assert_true(has_slab(2));
        assert_int_equal(open_slabs(&slabs, n_slots, 1), 0);
        assert_int_equal(kvpi_slabs_slots(&slabs), n_slots);
        for (unsigned s = 0; s < 3; s++)
            assert_int_equal(has_slab(s), s < n_slots / 2);
        kvpi_slabs_close(&slabs);
        end();
    }
}

/* The disk stops at each call of an opening: what was opened before is closed. */
TEST(test_slabs_that_cannot_be_opened)
{
    int is_open = 0;
    for (uint64_t n = 0; n < 20; n++) {
        for (int writable = 0; writable < 2; writable++) {
            struct kvpi_slabs slabs;
            begin();
            for (unsigned s = 0; s < 3; s++)
                make_slab(s, SLAB);
            sim_disk_stop_after(sim, n);
            is_open = open_slabs(&slabs, 6, writable) == 0;
            if (is_open)
                kvpi_slabs_close(&slabs);
            end();
        }
    }
    assert_true(is_open);
}

static uint64_t allotted; /* bytes that the disk has for a file */
static int allot_error;

/* It gives what it has, and says that this is not enough. */
static int allot_some(void *context, int file, uint64_t bytes)
{
    if (bytes <= allotted)
        return below.allot(context, file, bytes);
    (void)below.allot(context, file, allotted);
    return allot_error;
}

/* A slab on a disk with less room: whole slots that it was given are taken, be the disk full or at
 * its quota; if there is none, the file goes, and the store has what it had. */
TEST(test_slabs_that_cannot_grow)
{
    static const int errors[] = {ENOSPC, EDQUOT, EIO};
    for (size_t i = 0; i < COUNT(errors); i++) {
        for (allotted = 0; allotted <= SLAB; allotted += SLOT / 2) {
            struct kvpi_slabs slabs;
            const uint32_t n = (uint32_t)(allotted / SLOT);
            begin();
            make_slab(0, SLAB);
            disk.allot = allot_some;
            allot_error = errors[i];
            assert_int_equal(open_slabs(&slabs, 6, 1), 0);
            assert_int_equal(kvpi_slabs_grow(&slabs, 2), n > 0 ? 0 : errors[i]);
            assert_int_equal(kvpi_slabs_slots(&slabs), 2 + n);
            assert_int_equal(has_slab(1), n > 0);
            assert_int_equal(sim_disk_handles(sim), 1 + (n > 0));
            kvpi_slabs_close(&slabs);
            end();
        }
    }
}

/* A writer of a full disk starts with what there is: the slab before a cut one stays the last. */
TEST(test_slabs_of_a_full_disk)
{
    static const int errors[] = {ENOSPC, EDQUOT, EIO};
    for (size_t i = 0; i < COUNT(errors); i++) {
        struct kvpi_slabs slabs;
        begin();
        make_slab(0, SLOT);
        make_slab(1, SLAB);
        disk.allot = allot_some;
        allotted = 0;
        allot_error = errors[i];
        const int error = open_slabs(&slabs, 6, 1);
        assert_int_equal(error, errors[i] == EIO ? EIO : 0);
        if (!error) {
            assert_int_equal(kvpi_slabs_slots(&slabs), 1);
            kvpi_slabs_close(&slabs);
        }
        end();
    }
}

static unsigned n_syncs;
static unsigned fails_sync;

static int fail_sync(void *context, int file)
{
    n_syncs++;
    return n_syncs == fails_sync ? EIO : below.sync(context, file);
}

/* A sync that fails says so, and what it has not done the next one does. */
TEST(test_slabs_that_cannot_be_synced)
{
    for (fails_sync = 1; fails_sync <= 3; fails_sync++) {
        struct kvpi_slabs slabs;
        begin();
        for (unsigned s = 0; s < 3; s++)
            make_slab(s, SLAB);
        disk.sync = fail_sync;
        n_syncs = 0;
        assert_int_equal(open_slabs(&slabs, 6, 1), 0);
        for (unsigned s = 0; s < 3; s++)
            kvpi_slab_mark(&slabs.slabs[s]);
        assert_int_equal(kvpi_slabs_sync(&slabs), EIO);
        assert_int_equal(n_syncs, fails_sync);
        assert_int_equal(kvpi_slabs_sync(&slabs), 0);
        assert_int_equal(n_syncs, 4); /* the one that failed, and those behind it */
        assert_int_equal(kvpi_slabs_sync(&slabs), 0);
        assert_int_equal(n_syncs, 4);
        kvpi_slabs_close(&slabs);
        end();
    }
}

TEST_MAIN(NULL, NULL)
