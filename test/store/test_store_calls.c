/* Each call of the file store to the outside, by what can go wrong with it, in scenes. test/store
 * README.md has the table.
 *
 *   fails      it does nothing and reports an error, once
 *   repeats    it is done, and reports an error all the same: who tries again does it twice. An
 *              answer of io_uring comes twice. The clock stands still
 *   slow       a minute and a half pass. The clock jumps ahead
 *   killed     it is the last call before the process is killed
 *   power      it is the last call before the power is lost
 *
 * Each scene runs once without a fault, which counts its calls; then once for each call that it
 * makes and each fault, at the first, the last and some calls between. Whatever happens:
 *
 *   C1  each operation ends; nobody reads KV of another record; the limit holds
 *   C2  one fault fails one operation, or one opening, and not the next one; the store is never
 *       left alone for it
 *   C3  it costs a record and what needs it, and no others; the scene ends with all others
 *   C4  killed: what had been put is served; power: what was synced before. What was dropped stays
 *       dropped
 *   C5  after a close no file is open, no spare log is left; the next start has the same records
 *   C6  and takes and serves all
 *
 *   test_store_calls [N]     N calls of each kind between the first and the last; default 1
 *   test_store_calls --table runs, by call and fault */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

#include "mocka.h"
#include "sim_disk.h"
#include "sim_queue.h"
#include "store/file/store_file.h"
#include "store/file/survey.h"
#include "store_records.h"

enum { DEPTH = 4, RECORDS = 24, SLOT = 8192, SHARE = SLOT + 256, SLOTS = 16, LOGS = 3 * 552 };

#define SECOND UINT64_C(1000000000)
#define HOME   "/kv/01080f161d242b32/w0/"

/* ------------------------------------------------------------------------------------ the table */

/* Calls, with what they say when they fail. */
#define CALLS(X)                                                                                   \
    X(OPEN, open, EMFILE)                                                                          \
    X(READ, read, EIO)                                                                             \
    X(WRITE, write, EIO)                                                                           \
    X(SIZE, size, EIO)                                                                             \
    X(ROOM, room, 0)                                                                               \
    X(ALLOT, allot, EIO)                                                                           \
    X(RESERVE, reserve, ENOSPC)                                                                    \
    X(SYNC, sync, EIO)                                                                             \
    X(SYNC_DIRECTORY, sync_directory, EIO)                                                         \
    X(RENAME, rename, EIO)                                                                         \
    X(REMOVE, remove, EPERM)                                                                       \
    X(MAKE_DIRECTORY, make_directory, EACCES)                                                      \
    X(LIST, list, EMFILE)                                                                          \
    X(LOCK, lock, ENOLCK)                                                                          \
    X(SUBMIT, submit, EAGAIN)                                                                      \
    X(TAKE, take, EIO)                                                                             \
    X(CLOCK, clock, 0)

#define NUMBER(upper, lower, error) CALL_##upper,
#define NAME(upper, lower, error)   #lower,
#define ERROR(upper, lower, error)  error,

enum { CALLS(NUMBER) N_CALLS };
static const char *const call_names[N_CALLS] = {CALLS(NAME)};
static const int call_errors[N_CALLS] = {CALLS(ERROR)};

enum { NONE, FAILS, REPEATS, SLOW, KILLED, POWER, N_FAULTS };
static const char *const fault_names[N_FAULTS] = {"",     "fails",  "repeats",
                                                  "slow", "killed", "power"};

static uint64_t n_runs[N_CALLS][N_FAULTS];
static uint64_t n_between = 1;

/* There is no such thing: these only ask, or can be the last call no better than the one before. */
static int is_possible(unsigned call, unsigned fault)
{
    if (fault == REPEATS)
        return call != CALL_ROOM && call != CALL_SUBMIT;
    return call != CALL_CLOCK || fault < KILLED;
}

/* ----------------------------------------------------------------------------------- the scenes */

/*   o O i   open: 16 slots, 8 slots, by the queue        c k     close, or be killed
 *   b x     another writer of the same model opens, closes
 *   n       another model's writer opens, puts, closes
 *   p P     put a chain; put all                          g h     get all, ask for all
 *   s       sync                                          d e     drop a chain's second, evict half
 *   a       let an hour pass                              f r     the disk is full, has room
 *   y u v   an entry of the log is damaged, a slab is cut, the log is another version's
 *   l z     operators scan, clean */
#define STARTED "opscopko"

static const char *const scenes[] = {
    "oppgc",         /* a new directory */
    "ippshgc",       /* the same by the queue */
    STARTED,         /* closed, started again, killed, started again */
    "opspkopgc",     /* killed with puts behind a sync */
    "ipspkipgc",     /* the same by the queue */
    "oPPgcoPgc",     /* evictions, until the log is written anew */
    "iPsPgciPgc",    /* the same by the queue, with syncs between */
    "oppdgckodogc",  /* drops */
    "oppegakogc",    /* evictions by an operator */
    "oppcOPgcoPgc",  /* a smaller size, and the old one again */
    "opfPgsrPgc",    /* the disk fills up, and has room again */
    "ipfPsgrPgc",    /* the same by the queue */
    "opfPkofPrPgc",  /* killed and started on a full disk */
    "oppbgPhxgc",    /* two writers of one model */
    "ippcobpghxoc",  /* the second starts on what the first left */
    "nnoPPgc",       /* directories without a writer go for room */
    "nooppgnPc",     /* one that starts meanwhile */
    "oppkyopgc",     /* a damaged entry */
    "oppkuoPgc",     /* a slab that is too short */
    "oppcvopgcl",    /* another version's log */
    "oppslckzopglc", /* operators look, and clean */
};

enum { SCENES = sizeof scenes / sizeof *scenes };

/* ------------------------------------------------------------------------------------ the fault */

static struct {
    unsigned call;
    unsigned kind;
    uint64_t n; /* the n-th of its kind, from 1 */
} fault;

static uint64_t n_calls[N_CALLS];
static int stopped; /* that was the last call */
static int happened;

static struct sim_disk *sim;
static struct kvpi_disk below;
static struct kvpi_disk disk;
static struct sim_queue queue;
static struct kvpi_queue_system queue_below;
static struct kvpi_queue_system queue_system;
static struct kvpi_backend backends[2];
static uint64_t now;
static int stands_still;
static int again; /* an answer of the queue that comes again */
static uint32_t again_tag;
static int32_t again_result;

/* What happens to this call: NONE or a fault. */
static unsigned enter(unsigned call)
{
    if (stopped || ++n_calls[call] != fault.n || call != fault.call)
        return NONE;
    happened = 1;
    if (fault.kind == SLOW && call != CALL_CLOCK)
        now += 90 * SECOND;
    return fault.kind;
}

/* After the call: what it says. */
static int leave(unsigned call, unsigned kind, int error)
{
    if (kind == KILLED || kind == POWER) {
        sim_disk_stop_after(sim, 0);
        stopped = 1;
    }
    return kind == REPEATS && !error ? call_errors[call] : error;
}

/* A call: its error if it fails, else what is below says. */
#define PASS(call, what)                                                                           \
    const unsigned kind = enter(call);                                                             \
    (void)context;                                                                                 \
    return kind == FAILS ? call_errors[call] : leave(call, kind, below.what)

static int fault_open(void *context, const char *path, unsigned flags, int *out_file)
{
    const unsigned kind = enter(CALL_OPEN);
    if (kind == FAILS)
        return call_errors[CALL_OPEN];
    int file; /* given on success only */
    const int error = below.open(below.context, path, flags, &file);
    (void)context;
    if (kind == REPEATS && !error)
        below.close(below.context, file);
    else if (!error)
        *out_file = file;
    return leave(CALL_OPEN, kind, error);
}

static int fault_read(void *context, int file, const struct kvpi_span *spans, uint32_t n_spans,
                      uint64_t offset)
{
    PASS(CALL_READ, read(below.context, file, spans, n_spans, offset));
}

static int fault_write(void *context, int file, const struct kvpi_span *spans, uint32_t n_spans,
                       uint64_t offset)
{
    PASS(CALL_WRITE, write(below.context, file, spans, n_spans, offset));
}

static int fault_size(void *context, int file, uint64_t *out_bytes)
{
    PASS(CALL_SIZE, size(below.context, file, out_bytes));
}

static uint64_t fault_room(void *context, const char *path)
{
    const unsigned kind = enter(CALL_ROOM);
    (void)context;
    const uint64_t room = below.room(below.context, path);
    (void)leave(CALL_ROOM, kind, 0);
    return kind == FAILS ? 0 : room;
}

static int fault_allot(void *context, int file, uint64_t bytes)
{
    PASS(CALL_ALLOT, allot(below.context, file, bytes));
}

static int fault_reserve(void *context, int file, uint64_t bytes)
{
    PASS(CALL_RESERVE, reserve(below.context, file, bytes));
}

static int fault_sync(void *context, int file)
{
    PASS(CALL_SYNC, sync(below.context, file));
}

static int fault_sync_directory(void *context, const char *path)
{
    PASS(CALL_SYNC_DIRECTORY, sync_directory(below.context, path));
}

static int fault_rename(void *context, const char *from, const char *to)
{
    PASS(CALL_RENAME, rename(below.context, from, to));
}

static int fault_remove(void *context, const char *path, int is_directory)
{
    PASS(CALL_REMOVE, remove(below.context, path, is_directory));
}

static int fault_make_directory(void *context, const char *path)
{
    PASS(CALL_MAKE_DIRECTORY, make_directory(below.context, path));
}

static int fault_list(void *context, const char *path, kvpi_disk_entry_fn entry, void *to)
{
    PASS(CALL_LIST, list(below.context, path, entry, to));
}

static int fault_lock(void *context, int file, int wait)
{
    PASS(CALL_LOCK, lock(below.context, file, wait));
}

static int fault_submit(void *of, uint32_t *out_n)
{
    const unsigned kind = enter(CALL_SUBMIT);
    *out_n = 0;
    if (kind == FAILS)
        return call_errors[CALL_SUBMIT];
    return leave(CALL_SUBMIT, kind, queue_below.submit(of, out_n));
}

static int fault_take(void *of, uint32_t *out_tag, int32_t *out_result)
{
    if (again) {
        again = 0;
        *out_tag = again_tag;
        *out_result = again_result;
        return 1;
    }
    if (!queue_below.take(of, out_tag, out_result))
        return 0;
    const unsigned kind = enter(CALL_TAKE);
    (void)leave(CALL_TAKE, kind == REPEATS ? NONE : kind, 0);
    if (kind == FAILS)
        *out_result = -call_errors[CALL_TAKE];
    again = kind == REPEATS;
    again_tag = *out_tag;
    again_result = *out_result;
    return 1;
}

/* A second and more a call: what is to be looked at each second is looked at each time. */
static uint64_t fault_clock(void *context)
{
    (void)context;
    switch (enter(CALL_CLOCK)) {
    case FAILS: now -= now > 4000 * SECOND ? 3600 * SECOND : 0; break;
    case SLOW: now += 24 * 3600 * SECOND; break;
    case REPEATS: stands_still = 1; break;
    default: break;
    }
    now += stands_still && fault.n > 0 ? 0 : SECOND * 11 / 10;
    return now;
}

static kvp_status open_threads(const struct kvpi_backend_config *config, void **out_self,
                               char *out_why, size_t why_bytes)
{
    const struct kvpi_engine_config engine = {.choice = KVPI_ENGINE_THREADS};
    return kvpi_file_open(config, &disk, &engine, out_self, out_why, why_bytes);
}

static kvp_status open_queue(const struct kvpi_backend_config *config, void **out_self,
                             char *out_why, size_t why_bytes)
{
    const struct kvpi_engine_config engine = {.queue = &queue_system};
    return kvpi_file_open(config, &disk, &engine, out_self, out_why, why_bytes);
}

static void begin(unsigned seed)
{
    memset(n_calls, 0, sizeof n_calls);
    stopped = happened = stands_still = again = 0;
    now = 1000000 * SECOND;
    sim = sim_disk_create(seed);
    below = disk = sim_disk_interface(sim);
#define WRAP(name) disk.name = fault_##name
    WRAP(open);
    WRAP(read);
    WRAP(write);
    WRAP(size);
    WRAP(room);
    WRAP(allot);
    WRAP(reserve);
    WRAP(sync);
    WRAP(sync_directory);
    WRAP(rename);
    WRAP(remove);
    WRAP(make_directory);
    WRAP(list);
    WRAP(lock);
    queue = (struct sim_queue){.disk = &disk, .random = seed};
    queue_below = queue_system = sim_queue_interface(&queue);
    queue_system.submit = fault_submit;
    queue_system.take = fault_take;
    backends[0] = backends[1] = kvpi_file_backend;
    backends[0].open = open_threads;
    backends[1].open = open_queue;
}

/* ----------------------------------------------------------------------------------- the oracle */

static struct record records[RECORDS];

static struct {
    uint8_t stored[RECORDS];
    uint8_t synced[RECORDS];
    uint8_t dropped[RECORDS];
    unsigned n_failed; /* operations and openings */
    unsigned n_there;  /* at the end */
    int is_damaged;    /* by the scene: records may be bad */
} seen;

static char where[100];

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition))                                                                          \
            fail_msg("%s: not (%s), line %d", where, #condition, __LINE__);                        \
    } while (0)

static struct world {
    kvp_store *store;
    kvp_store *other;
    unsigned next; /* record that the next chain begins with */
} world;

static kvp_status try_open(unsigned model, uint64_t slots, int with_queue, kvp_store **out_store)
{
    char url[64];
    snprintf(url, sizeof url, "file:/kv?size=%llu", (unsigned long long)(slots * SHARE));
    kvp_store_config config = record_config(url);
    config.fingerprint = input_digest(model);
    config.now = fault_clock;
    *out_store = NULL;
    return kvpi_store_open(&config, &backends[with_queue], out_store, NULL, 0);
}

/* What fails once is tried again: then it works. NULL: the disk has stopped. */
static kvp_store *open_store(unsigned model, uint64_t slots, int with_queue)
{
    kvp_store *store;
    if (try_open(model, slots, with_queue, &store) == KVP_OK || stopped)
        return store;
    CHECK(happened);
    CHECK(++seen.n_failed == 1);
    CHECK(try_open(model, slots, with_queue, &store) == KVP_OK || stopped);
    return store;
}

/* A log that could not be removed with its directory is not counted. */
static void check_limit(void)
{
    const uint64_t left = happened && fault.call == CALL_REMOVE ? SLOT : 0;
    CHECK(sim_disk_bytes(sim) <= SLOTS * SHARE + LOGS + left);
}

static void note_result(uint32_t result)
{
    if (stopped)
        return;
    CHECK(result != KVP_STORE_AWAY && result != KVP_STORE_CLOSED);
    CHECK(seen.is_damaged || result != KVP_STORE_BAD);
    if (result == KVP_STORE_FAILED)
        CHECK(happened && ++seen.n_failed == 1);
}

static void put(kvp_store *store, unsigned r)
{
    const uint32_t result = record_put(store, &records[r]);
    note_result(result);
    seen.dropped[r] = 0;
    if (result == KVP_STORE_OK && store == world.store && !stopped)
        seen.stored[r] = 1;
    check_limit();
}

static uint32_t get(kvp_store *store, unsigned r)
{
    const uint32_t result = record_get(store, &records[r]);
    note_result(result);
    return result;
}

static void sync_store(kvp_store *store)
{
    assert_int_equal(kvp_store_sync(store, 0), KVP_OK);
    const uint32_t result = input_result(store);
    note_result(result);
    if (result == KVP_STORE_OK && !stopped)
        memcpy(seen.synced, seen.stored, sizeof seen.synced);
}

/* By the store's own word, which needs no disk: what is not there was evicted, or its parent. */
static void note_there(void)
{
    kvp_digest keys[RECORDS];
    uint64_t bits = 0;
    if (!world.store || world.other)
        return;
    for (unsigned r = 0; r < RECORDS; r++)
        keys[r] = records[r].key;
    assert_int_equal(kvp_store_have(world.store, keys, RECORDS, &bits, 0), KVP_OK);
    const uint32_t result = input_result(world.store);
    CHECK(result == KVP_STORE_OK || stopped);
    for (unsigned r = 0; r < RECORDS && result == KVP_STORE_OK; r++)
        if (!(bits >> r & 1))
            seen.stored[r] = seen.synced[r] = 0;
}

/* At its end the disk does nothing any more, as for a process that is gone. */
static void kill_all(int power)
{
    sim_disk_stop_after(sim, 0);
    const int was = stopped;
    stopped = 1;
    kvp_store_close(world.other);
    kvp_store_close(world.store);
    stopped = was;
    world.other = world.store = NULL;
    queue.n_ios = queue.n_taken = 0;
    again = 0;
    if (power)
        sim_disk_power_off(sim);
    else
        sim_disk_kill(sim);
}

static void drop(void)
{
    assert_int_equal(kvp_store_drop(world.store, &records[1].key, 1, 0), KVP_OK);
    CHECK(input_result(world.store) == KVP_STORE_OK);
    for (unsigned r = 1; r < DEPTH; r++) {
        seen.stored[r] = seen.synced[r] = 0;
        seen.dropped[r] = !stopped && !(happened && fault.kind <= REPEATS);
    }
}

static void evict(void)
{
    const kvp_store_match match = {.written_before = UINT64_MAX, .one_space = 1, .space = 1};
    assert_int_equal(kvp_store_evict(world.store, &match, 0), KVP_OK);
    CHECK(input_result(world.store) == KVP_STORE_OK);
    for (unsigned r = 0; r < RECORDS; r++)
        if (records[r].identity.space == 1)
            seen.stored[r] = seen.synced[r] = 0;
}

static void other_model(void)
{
    static struct record other;
    scoped_store *store = open_store(2, SLOTS, 0);
    record_make(&other, 0, 0, 0);
    other.identity.fingerprint = input_digest(2);
    other.block = other.kv;
    for (unsigned i = 0; i < 4 && store && !stopped; i++) {
        other.identity.digest = input_digest(500 + i);
        other.key = input_key(&other.identity);
        note_result(record_put(store, &other));
    }
}

static void damage(char how)
{
    uint8_t byte;
    seen.is_damaged = 1;
    memset(seen.stored, 0, sizeof seen.stored);
    if (how == 'u' && sim_disk_has(sim, HOME "slab-000001")) {
        sim_disk_cut(sim, HOME "slab-000001", SLOT);
        return;
    }
    const uint64_t at = how == 'v' ? 8 : 64 + 52 + 20;
    if (!sim_disk_peek(sim, HOME "log", at, &byte, 1)) {
        CHECK(happened); /* the store is in the next directory */
        return;
    }
    byte ^= 4;
    assert_true(sim_disk_poke(sim, HOME "log", at, &byte, 1));
}

static void count_record(void *context, const kvp_store_record *record)
{
    *(unsigned *)context += record->found == KVP_FOUND_GOOD;
}

static void look(char how)
{
    const kvp_store_match match = {.written_before = UINT64_MAX, .one_space = 1, .space = 1};
    kvp_store_cleaned cleaned;
    unsigned n_good = 0;
    kvp_store_scan_options options;
    kvp_store_scan_options_init(&options);
    options.depth = KVP_SCAN_PAYLOADS;
    options.record = count_record;
    options.context = &n_good;
    if (how == 'l')
        (void)kvpi_survey_scan(&disk, "/kv", &options, NULL, 0);
    else
        (void)kvpi_survey_clean(&disk, "/kv", &match, &cleaned, NULL, 0);
    for (unsigned r = 0; r < RECORDS && how == 'z'; r++)
        if (records[r].identity.space == 1)
            seen.stored[r] = seen.synced[r] = 0;
}

static void put_range(unsigned first, unsigned end)
{
    for (unsigned r = first; r < end && !stopped; r++) {
        /* What it evicts is not told: the other writer may have it, too. */
        if (world.other) {
            memset(seen.stored, 0, sizeof seen.stored);
            memset(seen.synced, 0, sizeof seen.synced);
        }
        put(world.store, r);
        note_there();
    }
}

static void do_store(char what)
{
    kvp_store *asked = world.other ? world.other : world.store;
    if (!world.store)
        return;
    switch (what) {
    case 'p':
        for (unsigned r = world.next; r < world.next + DEPTH && world.other && !stopped; r++)
            put(world.other, r);
        if (!world.other)
            put_range(world.next, world.next + DEPTH);
        world.next = (world.next + DEPTH) % RECORDS;
        break;
    case 'P': put_range(0, RECORDS); break;
    case 'g':
        for (unsigned r = 0; r < RECORDS && !stopped; r++)
            (void)get(asked, r);
        break;
    case 's': sync_store(world.store); break;
    case 'd': drop(); break;
    case 'e': evict(); break;
    default: break; /* h: as after each step */
    }
    note_there();
}

static void do_step(char what)
{
    switch (what) {
    case 'o':
    case 'O':
    case 'i':
        if (!world.store)
            world.store = open_store(1, what == 'O' ? SLOTS / 2 : SLOTS, what == 'i');
        break;
    case 'c':
        kvp_store_close(world.store);
        world.store = NULL;
        break;
    case 'k': kill_all(0); break;
    case 'b': world.other = open_store(1, SLOTS, 0); break;
    case 'x':
        kvp_store_close(world.other);
        world.other = NULL;
        break;
    case 'n': other_model(); break;
    case 'a': now += 3600 * SECOND; break;
    case 'f': sim_disk_limit(sim, sim_disk_bytes(sim) + 2 * SHARE + 100); break;
    case 'r': sim_disk_limit(sim, UINT64_MAX); break;
    case 'y':
    case 'u':
    case 'v': damage(what); break;
    case 'l':
    case 'z': look(what); break;
    default: do_store(what); break;
    }
    if (!world.store && what != 'k')
        return;
    note_there();
}

/* -------------------------------------------------------------------------------- after a scene */

static unsigned count_there(int must[2])
{
    unsigned n = 0;
    for (unsigned r = 0; r < RECORDS; r++) {
        const uint32_t result = get(world.store, r);
        n += result == KVP_STORE_OK;
        if (must[0] && seen.stored[r])
            CHECK(result == KVP_STORE_OK);
        if (must[1] && seen.synced[r])
            CHECK(result == KVP_STORE_OK);
        if (must[0] && seen.dropped[r])
            CHECK(result != KVP_STORE_OK);
    }
    return n;
}

/* Closed, opened again, used, closed: nothing fails any more. */
static void check_after(void)
{
    int must[2] = {fault.kind != POWER, fault.kind == POWER};
    fault.n = 0;
    stopped = 0;
    seen.is_damaged |= must[1];
    sim_disk_limit(sim, UINT64_MAX);
    seen.n_failed = 0;
    world.store = open_store(1, SLOTS, 0);
    seen.n_there = count_there(must);
    check_limit();
    kvp_store_close(world.store);
    CHECK(sim_disk_handles(sim) == 0);
    CHECK(!sim_disk_has(sim, HOME "log.new"));
    must[0] = must[1] = 0;
    world.store = open_store(1, SLOTS, 1);
    CHECK(count_there(must) == seen.n_there);
    now += 100 * SECOND;
    for (unsigned r = 0; r < RECORDS; r++) {
        put(world.store, r);
        CHECK(get(world.store, r) == KVP_STORE_OK);
    }
    CHECK(seen.n_failed == 0);
    kvp_store_close(world.store);
    world.store = NULL;
    CHECK(sim_disk_handles(sim) == 0);
}

/* The calls of a scene: those of its last close are not. */
static uint64_t n_made[N_CALLS];

static void run_scene(unsigned scene)
{
    memset(&seen, 0, sizeof seen);
    memset(&world, 0, sizeof world);
    begin(scene + 1);
    snprintf(where, sizeof where, "scene %u \"%s\", %s %llu %s", scene, scenes[scene],
             call_names[fault.call], (unsigned long long)fault.n, fault_names[fault.kind]);
    for (const char *step = scenes[scene]; *step && !stopped; step++)
        do_step(*step);
    memcpy(n_made, n_calls, sizeof n_made);
    if (stopped || fault.kind == KILLED || fault.kind == POWER) {
        kill_all(fault.kind == POWER);
    } else {
        kvp_store_close(world.other);
        kvp_store_close(world.store);
        world.other = world.store = NULL;
    }
    if (fault.kind != NONE)
        CHECK(happened);
    check_after();
    sim_disk_destroy(sim);
}

static void run_faults(unsigned scene, unsigned call, uint64_t made, unsigned n_there)
{
    /* A start reads little: in this scene each call is one. */
    const uint64_t between = strcmp(scenes[scene], STARTED) == 0 ? made : n_between;
    for (fault.kind = FAILS; fault.kind < N_FAULTS; fault.kind++) {
        uint64_t last = 0;
        if (!is_possible(call, fault.kind))
            continue;
        for (uint64_t i = 0; i <= between + 1; i++) {
            const uint64_t n = 1 + i * (made - 1) / (between + 1);
            if (n == last)
                continue;
            last = fault.n = n;
            fault.call = call;
            run_scene(scene);
            n_runs[call][fault.kind]++;
            /* Who waits for a second to pass before the next try waits for ever. */
            if (fault.kind <= SLOW && !stands_still)
                CHECK(seen.n_there + DEPTH >= n_there);
        }
    }
}

TEST(test_each_call_in_each_scene)
{
    for (unsigned scene = 0; scene < SCENES; scene++) {
        fault.kind = NONE;
        fault.n = 0;
        run_scene(scene);
        const unsigned n_there = seen.n_there;
        uint64_t made[N_CALLS];
        memcpy(made, n_made, sizeof made);
        for (unsigned call = 0; call < N_CALLS; call++)
            if (made[call] > 0)
                run_faults(scene, call, made[call], n_there);
    }
    for (unsigned call = 0; call < N_CALLS; call++)
        for (unsigned kind = FAILS; kind < N_FAULTS; kind++)
            if (is_possible(call, kind) != (n_runs[call][kind] > 0))
                fail_msg("%s %s: %llu runs", call_names[call], fault_names[kind],
                         (unsigned long long)n_runs[call][kind]);
}

static void print_table(void)
{
    printf("| call |");
    for (unsigned kind = FAILS; kind < N_FAULTS; kind++)
        printf(" %s |", fault_names[kind]);
    printf("\n|---|--:|--:|--:|--:|--:|\n");
    for (unsigned call = 0; call < N_CALLS; call++) {
        printf("| %s |", call_names[call]);
        for (unsigned kind = FAILS; kind < N_FAULTS; kind++)
            if (is_possible(call, kind))
                printf(" %llu |", (unsigned long long)n_runs[call][kind]);
            else
                printf(" - |");
        printf("\n");
    }
}

int main(int argc, char **argv)
{
#ifdef M_MMAP_THRESHOLD /* disks come and go: their memory need not */
    (void)mallopt(M_MMAP_THRESHOLD, 1 << 30);
    (void)mallopt(M_TRIM_THRESHOLD, 1 << 30);
#endif
    const int with_table = argc > 1 && strcmp(argv[1], "--table") == 0;
    if (argc > 1 && !with_table)
        n_between = strtoull(argv[1], NULL, 10);
    for (unsigned r = 0; r < RECORDS; r++)
        record_make(records, r, r % DEPTH, r / DEPTH % 2);
    const int result = run_all_tests(NULL, NULL);
    if (with_table)
        print_table();
    return result;
}
