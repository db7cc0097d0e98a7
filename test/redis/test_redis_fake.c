/* A store on a server of ours that answers as it should not: each answer is a miss within the
 * deadline, the blocks' neighbours stay untouched, and the store goes on with the next server. */
#define _GNU_SOURCE
#include "redis_records.h"

#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

enum mode {
    NOTHING, /* nil, as a server does that does not have the record */
    GARBAGE,
    ENDLESS,
    HUGE_,
    CLOSED_IN_THE_MIDDLE,
    SILENT_IN_THE_MIDDLE,
    CLOSED,
    SILENT,
    NUMBER,
    STATUS,
    ARRAY,
    NESTED,
    PUSHED,
    TWO,
    REFUSAL,
    MOVED,
    ASK,
    SHORT,
    EMPTY,
    ZEROS,
    ONE_MORE,
    MODES,
    /* Not one of all: each answer waits until the test lets it go. */
    GATED,
    GATED_ZEROS,
    GATED_MOVED,
};

static const char *const mode_names[MODES] = {"nothing",
                                              "garbage",
                                              "endless",
                                              "huge",
                                              "closed in the middle",
                                              "silent in the middle",
                                              "closed",
                                              "silent",
                                              "number",
                                              "status",
                                              "array",
                                              "nested",
                                              "pushed",
                                              "two",
                                              "refusal",
                                              "moved",
                                              "ask",
                                              "short",
                                              "empty",
                                              "zeros",
                                              "one more"};

enum { RECORD = 4096 + BLOCKS * BLOCK_BYTES };

static struct {
    int listener;
    int port;
    _Atomic int mode;
    _Atomic int n_answers;     /* of what is not INFO */
    _Atomic int n_maps;        /* CLUSTER, asked */
    _Atomic size_t n_sent;     /* bytes of the last answer with zeros */
    _Atomic int n_free;        /* answers that may go */
    const char *_Atomic map;   /* NULL: it says that it is alone; else what it answers to CLUSTER;
                                "": nothing */
    const char *_Atomic scan;  /* to SCAN */
    const char *_Atomic words; /* NULL: it answers to INFO; else an error, to that */
} fake;

/* ----------------------------------------------------------------------------------- the server */

/* 0: the other side has closed. */
static int say_bytes(int fd, const void *bytes, size_t n_bytes)
{
    const char *at = bytes;
    while (n_bytes > 0) {
        const ssize_t n = send(fd, at, n_bytes, MSG_NOSIGNAL);
        if (n <= 0)
            return 0;
        at += n;
        n_bytes -= (size_t)n;
    }
    return 1;
}

static int say(int fd, const char *text)
{
    return say_bytes(fd, text, strlen(text));
}

static int say_zeros(int fd, size_t length, size_t n)
{
    static const char zeros[65536];
    char head[40];
    snprintf(head, sizeof head, "$%zu\r\n", length);
    atomic_store(&fake.n_sent, 0);
    int good = say(fd, head);
    while (good && n > 0) {
        const size_t part = n < sizeof zeros ? n : sizeof zeros;
        good = say_bytes(fd, zeros, part);
        atomic_fetch_add(&fake.n_sent, part);
        n -= part;
    }
    return good;
}

/* The next command's name; its arguments are read and forgotten. 0: closed. */
static int hear(FILE *in, char *out_name)
{
    char line[64];
    int n = 0;
    if (!fgets(line, sizeof line, in) || sscanf(line, "*%d", &n) != 1)
        return 0;
    for (int i = 0; i < n; i++) {
        size_t bytes = 0;
        char skipped[256];
        if (!fgets(line, sizeof line, in) || sscanf(line, "$%zu", &bytes) != 1)
            return 0;
        for (size_t left = bytes + 2; left > 0;) {
            const size_t part = left < sizeof skipped ? left : sizeof skipped;
            if (fread(skipped, 1, part, in) != part)
                return 0;
            if (i == 0 && bytes < 16 && left == bytes + 2) {
                memcpy(out_name, skipped, bytes);
                out_name[bytes] = 0;
            }
            left -= part;
        }
    }
    return 1;
}

static int wait_until_closed(int fd)
{
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN | POLLRDHUP};
    poll(&poll_fd, 1, 20000);
    return 0;
}

/* Until an answer may go. 0: the other side has closed. */
static int wait_at_gate(int fd)
{
    for (;;) {
        int n = atomic_load(&fake.n_free);
        if (n > 0 && atomic_compare_exchange_strong(&fake.n_free, &n, n - 1))
            return 1;
        struct pollfd poll_fd = {.fd = fd, .events = POLLRDHUP};
        if (poll(&poll_fd, 1, 1) > 0)
            return 0;
    }
}

/* 0: the connection ends. */
static int answer(int fd, enum mode mode)
{
    switch (mode) {
    case GARBAGE: return say(fd, "HTTP/1.1 400 Bad Request\r\n\r\n");
    case ENDLESS: return say_zeros(fd, 1 << 30, 1 << 30);
    case HUGE_: return say(fd, "$9223372036854775807\r\nabc");
    case CLOSED_IN_THE_MIDDLE: return say_zeros(fd, RECORD, RECORD / 2) && 0;
    case SILENT_IN_THE_MIDDLE: return say_zeros(fd, RECORD, RECORD / 2) && wait_until_closed(fd);
    case CLOSED: /* an end, and then a reset, because not all was read: the next write is EPIPE */
        shutdown(fd, SHUT_WR);
        return 0;
    case SILENT: return wait_until_closed(fd);
    case NUMBER: return say(fd, ":5\r\n");
    case STATUS: return say(fd, "+OK\r\n");
    case ARRAY: return say(fd, "*2\r\n$1\r\na\r\n$1\r\nb\r\n");
    case NESTED:
        for (int i = 0; i < 2000; i++)
            if (!say(fd, "*1\r\n"))
                return 0;
        return 1;
    case PUSHED: return say(fd, ">2\r\n+invalidate\r\n:1\r\n");
    case TWO: return say(fd, "$-1\r\n$5\r\nhello\r\n");
    case REFUSAL: return say(fd, "-NOPERM this user has no permissions to run the command\r\n");
    case MOVED: return say(fd, "-MOVED 1 127.0.0.1:1\r\n");
    case ASK: return say(fd, "-ASK 1 127.0.0.1:1\r\n");
    case SHORT: return say(fd, "$5\r\nhello\r\n");
    case EMPTY: return say(fd, "$0\r\n\r\n");
    case ZEROS: return say_zeros(fd, RECORD, RECORD) && say(fd, "\r\n");
    case ONE_MORE: return say_zeros(fd, RECORD + 1, RECORD + 1) && say(fd, "\r\n");
    case GATED_ZEROS: return wait_at_gate(fd) && say_zeros(fd, RECORD, RECORD) && say(fd, "\r\n");
    case GATED_MOVED: return wait_at_gate(fd) && say(fd, "-MOVED 1 127.0.0.1:1\r\n");
    case GATED:
        if (!wait_at_gate(fd))
            return 0;
        break;
    case NOTHING:
    case MODES: break;
    }
    return say(fd, "$-1\r\n");
}

static void *serve(void *context)
{
    (void)context;
    int fd;
    while ((fd = accept(fake.listener, NULL, NULL)) >= 0) {
        FILE *in = fdopen(fd, "r");
        char name[16];
        int goes_on = 1;
        while (goes_on && hear(in, name)) {
            const char *map = atomic_load(&fake.map);
            if (strcmp(name, "SCAN") == 0) {
                goes_on = say(fd, atomic_load(&fake.scan));
            } else if (strcmp(name, "INFO") == 0 && atomic_load(&fake.words)) {
                goes_on = say(fd, atomic_load(&fake.words));
            } else if (strcmp(name, "INFO") == 0) {
                goes_on = say(fd, map ? "$38\r\nredis_version:7.0.1\ncluster_enabled:1\n\r\n"
                                      : "$20\r\nredis_version:7.0.1\n\r\n");
            } else if (strcmp(name, "CLUSTER") == 0) {
                atomic_fetch_add(&fake.n_maps, 1);
                goes_on = !map     ? say(fd, "-ERR This instance has no cluster support\r\n")
                          : map[0] ? say(fd, map)
                                   : wait_until_closed(fd);
            } else if (strcmp(name, "UNLINK") == 0) {
                goes_on = say(fd, ":1\r\n");
            } else {
                atomic_fetch_add(&fake.n_answers, 1);
                goes_on = answer(fd, (enum mode)atomic_load(&fake.mode));
            }
        }
        fclose(in);
    }
    return NULL;
}

/* ------------------------------------------------------------------------------------ the tests */

static kvp_store *open_on_fake(void)
{
    char url[100];
    snprintf(url, sizeof url, "redis://127.0.0.1:%d?connections=1&timeout=1s", fake.port);
    kvp_store_config config = config_of(url);
    return open_store(&config);
}

/* As get(), with a page of marks on both sides of the blocks. */
static uint32_t guarded_get(kvp_store *store, const struct record *record)
{
    static uint8_t kv[BLOCKS][3][BLOCK_BYTES];
    memset(kv, 0xEE, sizeof kv);
    void *blocks[BLOCKS] = {kv[0][1], kv[1][1]};
    assert_int_equal(kvp_store_get(store, &record->identity, blocks, 8), KVP_OK);
    const uint32_t result = input_result(store);
    for (int b = 0; b < BLOCKS; b++)
        for (int i = 0; i < BLOCK_BYTES; i++)
            assert_true(kv[b][0][i] == 0xEE && kv[b][2][i] == 0xEE);
    return result;
}

/* Of an answer that is too long only so much is read as a record has; the rest is what the system
 * holds between the two. */
enum { SENT_MAX = 32 << 20 };

static void come_back(kvp_store *store, const struct record *record)
{
    atomic_store(&fake.mode, NOTHING);
    uint32_t result;
    int tries = 0;
    while ((result = guarded_get(store, record)) != KVP_STORE_ABSENT && tries++ < 1000) {
        /* Not BAD, nor RACED: an answer to what was asked before. */
        assert_true(result == KVP_STORE_FAILED || result == KVP_STORE_AWAY);
        poll(NULL, 0, 10);
    }
    assert_int_equal(result, KVP_STORE_ABSENT);
}

static uint32_t expected_of(enum mode mode)
{
    if (mode == SHORT || mode == EMPTY || mode == ZEROS || mode == ONE_MORE)
        return KVP_STORE_BAD;
    /* The first of two answers is one. The second ends the connection. */
    return mode == NOTHING || mode == MOVED || mode == ASK || mode == TWO ? KVP_STORE_ABSENT
                                                                          : KVP_STORE_FAILED;
}

TEST(every_answer_is_a_miss)
{
    struct record record;
    make_record(&record, 1, 0, NULL);
    for (int mode = 0; mode < MODES; mode++) {
        scoped_store *store = open_on_fake();
        atomic_store(&fake.mode, mode);
        const uint32_t result = guarded_get(store, &record);
        if (result != expected_of((enum mode)mode))
            fail_msg("%s: the get ended with %u", mode_names[mode], result);
        assert_true(atomic_load(&fake.n_sent) < SENT_MAX);
        come_back(store, &record);
    }
}

/* A miss costs one round trip: one command, one answer. */
TEST(a_miss_is_one_command)
{
    struct record record;
    make_record(&record, 1, 0, NULL);
    atomic_store(&fake.mode, NOTHING);
    scoped_store *store = open_on_fake();
    const int before = atomic_load(&fake.n_answers);
    assert_int_equal(guarded_get(store, &record), KVP_STORE_ABSENT);
    assert_int_equal(atomic_load(&fake.n_answers), before + 1);
}

TEST(other_answers_to_other_commands)
{
    struct record record;
    make_record(&record, 1, 0, NULL);
    for (int mode = GARBAGE; mode < MODES; mode++) {
        scoped_store *store = open_on_fake();
        atomic_store(&fake.mode, mode);
        uint64_t bits = ~UINT64_C(0);
        assert_int_equal(kvp_store_have(store, &record.key, 1, &bits, 1), KVP_OK);
        const uint32_t have_result = input_result(store);
        /* A number is the right kind of answer; of a key that is elsewhere, one says so. */
        const int is_good = mode == NUMBER || mode == MOVED || mode == ASK;
        assert_int_equal(have_result, is_good ? KVP_STORE_OK : KVP_STORE_FAILED);
        assert_true(bits == (mode == NUMBER));
        come_back(store, &record);
        atomic_store(&fake.mode, mode);
        const uint32_t put_result = put(store, &record);
        if (put_result != (mode == STATUS ? KVP_STORE_OK
                           : mode == TWO  ? KVP_STORE_KNOWN
                                          : KVP_STORE_FAILED))
            fail_msg("%s: the put ended with %u", mode_names[mode], put_result);
        come_back(store, &record);
    }
}

/* The connection is closed while a batch is on its way: no signal, and the batch ends. */
TEST(closed_in_a_batch)
{
    static kvp_digest keys[KVP_STORE_KEYS_MAX];
    static uint64_t bits[KVP_STORE_KEYS_MAX / 64];
    for (unsigned i = 0; i < KVP_STORE_KEYS_MAX; i++)
        keys[i] = input_digest(i);
    for (int i = 0; i < 10; i++) {
        scoped_store *store = open_on_fake();
        atomic_store(&fake.mode, CLOSED);
        assert_int_equal(kvp_store_have(store, keys, KVP_STORE_KEYS_MAX, bits, 1), KVP_OK);
        assert_int_equal(input_result(store), KVP_STORE_FAILED);
    }
}

/* Maps that are none, or not whole: what is asked for goes to the server of the URL, or is missed.
 * A server that sends everybody away is asked three times. */
TEST(maps_that_lie)
{
    static const char *const maps[] = {
        "*0\r\n",
        "*-1\r\n",
        "$-1\r\n",
        "+OK\r\n",
        ":5\r\n",
        "-ERR unknown command 'CLUSTER'\r\n",
        "*1\r\n*3\r\n:0\r\n:16384\r\n*2\r\n$1\r\nh\r\n:1\r\n",
        "*1\r\n*3\r\n:-5\r\n:16383\r\n*2\r\n$1\r\nh\r\n:1\r\n",
        "*1\r\n*3\r\n:9\r\n:3\r\n*2\r\n$1\r\nh\r\n:1\r\n",
        "*1\r\n*3\r\n:0\r\n:9223372036854775807\r\n*2\r\n$1\r\nh\r\n:1\r\n",
        "*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$1\r\nh\r\n:65536\r\n",
        "*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n:1\r\n:1\r\n",
        "*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$-1\r\n:0\r\n",
        "*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$5\r\n\033[31m\r\n:1\r\n",
        "*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$3\r\nh\377h\r\n:1\r\n",
        "*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$3\r\nh h\r\n:1\r\n",
        "*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n",
        "*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:1\r\n",
    };
    struct record record;
    make_record(&record, 1, 0, NULL);
    for (unsigned i = 0; i < sizeof maps / sizeof *maps; i++) {
        atomic_store(&fake.map, maps[i]);
        atomic_store(&fake.mode, NOTHING);
        scoped_store *store = open_on_fake();
        if (i + 1 < sizeof maps / sizeof *maps)
            come_back(store, &record);
        else /* a whole map, of a server where nobody is */
            assert_int_not_equal(guarded_get(store, &record), KVP_STORE_ABSENT);
    }
    /* It has everything, and says that another has it. */
    char own[100];
    snprintf(own, sizeof own, "*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:%d\r\n",
             fake.port);
    atomic_store(&fake.map, own);
    atomic_store(&fake.mode, MOVED);
    kvp_store *store = open_on_fake();
    const int before = atomic_load(&fake.n_answers);
    assert_int_equal(guarded_get(store, &record), KVP_STORE_ABSENT);
    assert_int_equal(atomic_load(&fake.n_answers), before + 3);
    kvp_store_close(store);
    atomic_store(&fake.map, NULL);
}

/* -------------------------------------------------------------------------------- for operators */

struct seen {
    unsigned n_records;
    unsigned n_good; /* bytes that came, of a name of ours */
};

static int note_record(void *context, const char *name, const uint8_t *bytes, size_t n_bytes)
{
    struct seen *seen = context;
    seen->n_records++;
    seen->n_good += strcmp(name, "kvp1:a") == 0 && bytes && n_bytes == 5;
    return 1; /* it is to go */
}

static kvp_status walk_fake(struct seen *out_seen, char *out_why, size_t why_bytes)
{
    const struct kvpi_walk walk = {.n_bytes = SIZE_MAX, .record = note_record, .context = out_seen};
    struct kvpi_url url;
    char text[100];
    *out_seen = (struct seen){0};
    snprintf(text, sizeof text, "redis://127.0.0.1:%d?timeout=1s", fake.port);
    assert_int_equal(kvpi_url_read(text, &url, out_why, why_bytes), KVP_OK);
    return kvpi_redis_walk(&kvpi_net_system, &url, &walk, out_why, why_bytes);
}

/* A list that is none, or never ends, is an error. Names that are not ours are left alone. */
TEST(scans_that_lie)
{
    static const struct {
        const char *answer;
        const char *words;
    } lies[] = {
        {"*2\r\n$1\r\n7\r\n*0\r\n", "the cursor that it was given"},
        {"*2\r\n$30\r\n123456789012345678901234567890\r\n*0\r\n", "no cursor"},
        {"*2\r\n$0\r\n\r\n*0\r\n", "no cursor"},
        {"*2\r\n*1\r\n$1\r\n0\r\n*0\r\n", "no cursor"},
        {"*0\r\n", "no cursor"},
        {"*-1\r\n", "another kind of answer"},
        {"$1\r\n0\r\n", "another kind of answer"},
        {"$-1\r\n", "another kind of answer"},
        {":0\r\n", "another kind of answer"},
        {"+OK\r\n", "another kind of answer"},
        {"*2\r\n$1\r\n0\r\n*1\r\n*1\r\n$6\r\nkvp1:a\r\n", "wrong kind"},
        {"-NOPERM this user has no permissions to run the 'scan' command\r\n", "NOPERM"},
    };
    struct seen seen;
    char why[300];
    atomic_store(&fake.mode, SHORT);
    for (unsigned i = 0; i < sizeof lies / sizeof *lies; i++) {
        atomic_store(&fake.scan, lies[i].answer);
        assert_int_equal(walk_fake(&seen, why, sizeof why), KVP_E_IO);
        if (!strstr(why, lies[i].words))
            fail_msg("%u: %s", i, why);
        assert_int_equal(seen.n_records, 0);
    }
    atomic_store(&fake.scan,
                 "*2\r\n$1\r\n0\r\n*4\r\n$6\r\nkvp1:a\r\n$4\r\nkvp1\r\n$6\r\nother:\r\n$-1\r\n");
    assert_int_equal(walk_fake(&seen, why, sizeof why), KVP_OK);
    assert_fields(seen, n_records, 1, n_good, 1);
    /* A record that is none. */
    static const enum mode modes[] = {NUMBER, STATUS,  ARRAY,   NESTED,
                                      PUSHED, GARBAGE, REFUSAL, CLOSED};
    for (unsigned i = 0; i < sizeof modes / sizeof *modes; i++) {
        atomic_store(&fake.mode, modes[i]);
        if (walk_fake(&seen, why, sizeof why) != KVP_E_IO)
            fail_msg("%s: %s", mode_names[modes[i]], why);
        assert_int_equal(seen.n_records, 0);
    }
}

/* What a server says of an error is shown to operators: as text, whatever it is. Its version, if it
 * cannot do what this library needs. */
TEST(words_are_text)
{
    kvp_store_config config;
    kvp_store *store = NULL;
    char url[100], why[300];
    snprintf(url, sizeof url, "redis://127.0.0.1:%d?connections=1&timeout=1s", fake.port);
    config = config_of(url);
    atomic_store(&fake.words, "-NOAUTH \033[31m\001\377\t!\r\n");
    assert_int_equal(kvpi_store_open(&config, &kvpi_redis_backend, &store, why, sizeof why),
                     KVP_E_IO);
    assert_non_null(strstr(why, "answers: NOAUTH ?[31m??"
                                "?!"));
    atomic_store(&fake.words, "$20\r\nredis_version:6.2.1\n\r\n");
    store = open_store(&config);
    assert_int_equal(kvp_store_describe(store, why, sizeof why), KVP_OK);
    assert_non_null(strstr(why, "server 6.2.1,"));
    assert_non_null(strstr(why, "; hits renew nothing before 7.0"));
    kvp_store_close(store);
    atomic_store(&fake.words, NULL);
}

/* ---------------------------------------------------------------------------------- deadlines */

#define SECOND UINT64_C(1000000000)

static uint64_t simulated_ns;

static uint64_t simulated_clock(void *context)
{
    (void)context;
    return simulated_ns;
}

/* One connection, whose answers wait; the clock stands still. */
static kvp_store *open_in_simulated_time(enum mode mode)
{
    char url[100];
    simulated_ns = 1000 * SECOND;
    atomic_store(&fake.n_free, 0);
    atomic_store(&fake.mode, mode);
    snprintf(url, sizeof url, "redis://127.0.0.1:%d?connections=1&timeout=1s", fake.port);
    kvp_store_config config = config_of(url);
    config.now = simulated_clock;
    return open_store(&config);
}

/* Work until the server has been asked n times in all. */
static void work_until_asked(kvp_store *store, int n)
{
    for (int i = 0; i < 5000 && atomic_load(&fake.n_answers) < n; i++) {
        assert_int_equal(kvp_store_work(store, NULL), KVP_OK);
        poll(NULL, 0, 1);
    }
    assert_true(atomic_load(&fake.n_answers) >= n);
}

/* Work until n have ended; in no simulated time. */
static void work_until_done(kvp_store *store, uint32_t n, kvp_store_done *out_done)
{
    uint32_t n_done = 0;
    for (int i = 0; i < 5000 && n_done < n; i++) {
        uint32_t more = 0;
        assert_int_equal(kvp_store_work(store, NULL), KVP_OK);
        assert_int_equal(kvp_store_poll(store, out_done + n_done, n - n_done, &more), KVP_OK);
        n_done += more;
        poll(NULL, 0, 1);
    }
    if (n_done < n)
        fail_msg("%u of %u have ended when their time was over", n_done, n);
}

/* The server answers within the time that a connection gives it: those that wait for the connection
 * end when their own time is over, and so does the one that was asked late. It is not the server's
 * fault: it is asked again at once. */
TEST(a_queue_ends_in_time)
{
    enum { N = 6 };
    static uint8_t kv[N][BLOCKS][BLOCK_BYTES];
    static struct record record;
    void *blocks[N][BLOCKS];
    kvp_store_done done[N];
    make_record(&record, 1, 0, NULL);
    scoped_store *store = open_in_simulated_time(GATED);
    const int asked = atomic_load(&fake.n_answers);
    for (int i = 0; i < N; i++) {
        blocks[i][0] = kv[i][0];
        blocks[i][1] = kv[i][1];
        assert_int_equal(kvp_store_get(store, &record.identity, blocks[i], 1), KVP_OK);
    }
    work_until_asked(store, asked + 1);
    simulated_ns += SECOND * 8 / 10;
    atomic_store(&fake.n_free, 1);
    work_until_done(store, 1, done);
    assert_int_equal(done[0].result, KVP_STORE_ABSENT);
    work_until_asked(store, asked + 2);
    simulated_ns += SECOND * 2 / 10;
    work_until_done(store, N - 1, done);
    for (int i = 0; i < N - 1; i++)
        assert_int_equal(done[i].result, KVP_STORE_FAILED);
    assert_int_equal(atomic_load(&fake.n_answers), asked + 2);
    atomic_store(&fake.mode, NOTHING);
    assert_int_equal(guarded_get(store, &record), KVP_STORE_ABSENT);
}

/* A server that has had its time is left alone, and what waits for it does not wait any longer. */
TEST(a_silent_server_is_left_alone)
{
    static struct record record;
    kvp_store_done done[2];
    uint64_t bits[2];
    make_record(&record, 1, 0, NULL);
    scoped_store *store = open_in_simulated_time(GATED);
    const int asked = atomic_load(&fake.n_answers);
    for (int i = 0; i < 2; i++)
        assert_int_equal(kvp_store_have(store, &record.key, 1, &bits[i], 1), KVP_OK);
    work_until_asked(store, asked + 1);
    simulated_ns += SECOND;
    work_until_done(store, 2, done);
    assert_int_equal(done[0].result, KVP_STORE_FAILED);
    assert_int_equal(done[1].result, KVP_STORE_FAILED);
    assert_int_equal(guarded_get(store, &record), KVP_STORE_AWAY);
    assert_int_equal(stats_of(store).away_ns, SECOND / 10);
    simulated_ns += SECOND / 25;
    assert_int_equal(stats_of(store).away_ns, SECOND / 10 - SECOND / 25);
    assert_int_equal(guarded_get(store, &record), KVP_STORE_AWAY);
    assert_int_equal(stats_of(store).away_ns, SECOND / 10 - SECOND / 25);
    simulated_ns += SECOND;
    assert_int_equal(stats_of(store).away_ns, 0);
    /* It is tried again, and lets its time go by: twice as long now. */
    assert_int_equal(kvp_store_have(store, &record.key, 1, &bits[0], 1), KVP_OK);
    work_until_asked(store, asked + 2);
    simulated_ns += SECOND;
    work_until_done(store, 1, done);
    assert_int_equal(stats_of(store).away_ns, SECOND / 5);
    simulated_ns += SECOND / 5;
    atomic_store(&fake.mode, NOTHING);
    assert_int_equal(guarded_get(store, &record), KVP_STORE_ABSENT);
    assert_int_equal(stats_of(store).away_ns, 0);
}

/* What is bad is read a second time, and what has moved is asked for again, in the same time. */
TEST(second_tries_end_in_time)
{
    static struct record record;
    make_record(&record, 1, 0, NULL);
    for (int moved = 0; moved < 2; moved++) {
        uint8_t kv[BLOCKS][BLOCK_BYTES];
        void *blocks[BLOCKS] = {kv[0], kv[1]};
        kvp_store_done done;
        scoped_store *store = open_in_simulated_time(moved ? GATED_MOVED : GATED_ZEROS);
        const int asked = atomic_load(&fake.n_answers);
        const int maps = atomic_load(&fake.n_maps);
        if (moved)
            atomic_store(&fake.map, "");
        assert_int_equal(kvp_store_get(store, &record.identity, blocks, 1), KVP_OK);
        work_until_asked(store, asked + 1);
        simulated_ns += SECOND * 8 / 10;
        atomic_store(&fake.n_free, 1);
        if (!moved)
            work_until_asked(store, asked + 2);
        else /* the store has the answer when it asks for the map */
            for (int i = 0; i < 5000 && atomic_load(&fake.n_maps) == maps; i++) {
                assert_int_equal(kvp_store_work(store, NULL), KVP_OK);
                poll(NULL, 0, 1);
            }
        simulated_ns += SECOND * 2 / 10;
        work_until_done(store, 1, &done);
        /* Of what has moved, where to is not known: a miss. */
        assert_int_equal(done.result, moved ? KVP_STORE_ABSENT : KVP_STORE_FAILED);
        atomic_store(&fake.mode, NOTHING);
    }
    atomic_store(&fake.map, NULL);
}

/* A store that nobody answers is opened all the same: the server may come later. */
TEST(nobody_there)
{
    struct record record;
    make_record(&record, 1, 0, NULL);
    kvp_store_config config = config_of("redis://127.0.0.1:1?timeout=1s");
    scoped_store *store = open_store(&config);
    char text[300];
    assert_int_equal(kvp_store_describe(store, text, sizeof text), KVP_OK);
    assert_non_null(strstr(text, "away: Connection refused"));
    assert_int_not_equal(get(store, &record), KVP_STORE_ABSENT);
}

/* What the URL may be, and what is said of one that tells everybody everything. */
TEST(urls)
{
    static const char *const wrong[] = {
        "redis:",           "redis:/host",
        "redis://",         "redis://:1",
        "redis://h:0",      "redis://h:65536",
        "redis://h:1x",     "redis://h:1/x",
        "redis://user@h",   "redis://u:%4@h",
        "redis://u:%00@h",  "redis://u:@h",
        "redis://[::1",     "redis://[::1]x",
        "redis://h?tags=0", "redis://h?tags=16385",
        "redis://h?tags=x", "redis://h?connections=65",
        "redis://h?ttl=1m", "redis://h?timeout=0s",
    };
    for (unsigned i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        kvp_store_config config = config_of(wrong[i]);
        kvp_store *store = NULL;
        char why[300];
        if (kvpi_store_open(&config, &kvpi_redis_backend, &store, why, sizeof why) != KVP_E_ARG)
            fail_msg("%s was accepted", wrong[i]);
        assert_true(strlen(why) > 0);
    }
    /* Another address of this machine: nobody is there, but whoever might be is not this host. */
    kvp_store_config config = config_of("redis://0.0.0.0:1?timeout=1s");
    char text[300];
    kvp_store *store = open_store(&config);
    assert_int_equal(kvp_store_describe(store, text, sizeof text), KVP_OK);
    assert_non_null(strstr(text, "no TLS and no secret"));
    kvp_store_close(store);
    config.secret = "0123456789abcdef";
    config.secret_bytes = 16;
    store = open_store(&config);
    assert_int_equal(kvp_store_describe(store, text, sizeof text), KVP_OK);
    assert_null(strstr(text, "no secret"));
    kvp_store_close(store);
}

int main(void)
{
    fake.listener = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof address;
    if (bind(fake.listener, (struct sockaddr *)&address, n) != 0 ||
        listen(fake.listener, 16) != 0 ||
        getsockname(fake.listener, (struct sockaddr *)&address, &n) != 0) {
        perror("the loopback interface");
        return 1;
    }
    fake.port = ntohs(address.sin_port);
    pthread_t thread;
    if (pthread_create(&thread, NULL, serve, NULL) != 0)
        return 1;
    return run_all_tests(NULL, NULL);
}
