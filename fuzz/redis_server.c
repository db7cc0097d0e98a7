/* redis_server: a command is answered when its last byte is written. Descriptors are of /dev/null,
 * so that poll(2) never waits for one. */
#define _POSIX_C_SOURCE 200809L
#include "redis_server.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "store/identity/identity_bytes.h"

#include "redis_values.h"
#include "require.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

enum {
    CONNS = 24,
    IN = 128 * 1024,
    OUT = 320 * 1024, /* more than an answer may have */
    ANSWER = 128 * 1024,
    ARGS = 8,
    COMMANDS = 17,      /* kinds */
    STARVED_MAX = 8,    /* then it closes, if it is not patient */
    COMMANDS_MAX = 600, /* then nobody answers: what asks on and on ends */
};

struct conn {
    int fd; /* of /dev/null */
    int is_open;
    int is_closed; /* by the server */
    int is_silent;
    uint64_t silent_until; /* what it says meanwhile comes then */
    int n_starved;         /* times in a row that nothing was there to be read */
    size_t chunk;          /* bytes at once, either way */
    size_t n_in;
    size_t n_out;
    size_t out_at;
    int in_multi; /* 1: the next one is the first of a MULTI */
    int is_dirty; /* and one of them was refused */
    char in[IN];
    char out[OUT];
};

static struct {
    struct redis_input *input;
    int is_cluster;
    int is_patient;
    uint64_t max_memory;
    unsigned page; /* names of a SCAN; 0: all */
    const char *second_host;
    const char *said; /* instead of all answers */
    unsigned n_asked[COMMANDS];
    unsigned n_commands;
    uint64_t n_sent;
    uint64_t (*now)(void *context);
    struct {
        const char *command; /* NULL: no trouble */
        unsigned nth;
        enum redis_trouble kind;
    } trouble;
    int had_trouble;
    struct conn conns[CONNS];
    size_t n_answer;
    char answer[ANSWER];
} server;

static const char *const commands[COMMANDS] = {
    "AUTH",    "SELECT", "INFO", "CLUSTER", "SET",  "GET",   "GETRANGE", "EXISTS", "UNLINK",
    "PEXPIRE", "SCAN",   "HSET", "HMGET",   "HGET", "MULTI", "EXEC",     "MEMORY"};

uint8_t redis_draw(struct redis_input *input)
{
    return input->at < input->size ? input->data[input->at++] : 0;
}

static uint32_t draw(void)
{
    return redis_draw(server.input);
}

static uint32_t draw2(void)
{
    const uint32_t low = draw();
    return low | draw() << 8;
}

void redis_server_begin(struct redis_input *input, int is_cluster)
{
    server.input = input;
    server.is_cluster = is_cluster;
    server.is_patient = 0;
    server.max_memory = UINT64_C(1) << 30;
    server.page = 0;
    server.second_host = "127.0.0.1";
    server.said = NULL;
    memset(server.n_asked, 0, sizeof server.n_asked);
    server.n_commands = 0;
    server.n_sent = 0;
    server.now = NULL;
    server.trouble.command = NULL;
    server.had_trouble = 0;
    for (int i = 0; i < VALUES; i++)
        values[i].n_bytes = 0;
    for (int i = 0; i < CONNS; i++) {
        server.conns[i].is_open = 0;
        if (server.conns[i].fd == 0)
            server.conns[i].fd = open("/dev/null", O_RDWR | O_CLOEXEC);
        require(server.conns[i].fd > 0);
    }
}

void redis_server_is_patient(int is_patient)
{
    server.is_patient = is_patient;
}

void redis_server_memory(uint64_t max_memory)
{
    server.max_memory = max_memory;
}

void redis_server_page(unsigned n_names)
{
    server.page = n_names;
}

void redis_server_clock(uint64_t (*now)(void *context))
{
    server.now = now;
}

void redis_server_trouble(const char *command, unsigned nth, enum redis_trouble kind)
{
    server.trouble.command = command;
    server.trouble.nth = nth;
    server.trouble.kind = kind;
}

int redis_server_is_waiting_for_trouble(void)
{
    return server.trouble.command != NULL;
}

void redis_server_recover(void)
{
    server.input->at = server.input->size;
    server.n_commands = 0;
}

void redis_server_host(const char *host)
{
    server.second_host = host;
}

void redis_server_never_ready(void)
{
    static int ends[2]; /* the other one stays open, and nobody writes */
    require(pipe(ends) == 0);
    for (int i = 0; i < CONNS; i++)
        require(dup2(ends[0], server.conns[i].fd) == server.conns[i].fd);
}

void redis_server_hang_up(void)
{
    for (int i = 0; i < CONNS; i++)
        server.conns[i].is_closed = 1;
}

void redis_server_say(const char *answer)
{
    server.said = answer;
}

static int is(struct text word, const char *name)
{
    return word.n == strlen(name) && memcmp(word.at, name, word.n) == 0;
}

unsigned redis_server_asked(const char *command)
{
    unsigned n = 0;
    for (int i = 0; i < COMMANDS; i++)
        n += strcmp(commands[i], command) == 0 ? server.n_asked[i] : 0;
    return n;
}

uint64_t redis_server_sent(void)
{
    return server.n_sent;
}

unsigned redis_server_open(void)
{
    unsigned n = 0;
    for (int i = 0; i < CONNS; i++)
        n += server.conns[i].is_open != 0;
    return n;
}

uint64_t redis_server_expiry(const char *name)
{
    const struct value *value = find((struct text){name, strlen(name)});
    return value ? value->expires_ns : 0;
}

/* ------------------------------------------------------------------------------- right answers */

static void say(const char *format, ...) __attribute__((format(printf, 1, 2)));

static void say(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    const int n =
        vsnprintf(server.answer + server.n_answer, ANSWER - server.n_answer, format, arguments);
    va_end(arguments);
    require(n >= 0 && (size_t)n < ANSWER - server.n_answer);
    server.n_answer += (size_t)n;
}

static void say_bulk(const void *bytes, size_t n)
{
    say("$%zu\r\n", n);
    require(server.n_answer + n + 2 < ANSWER);
    memcpy(server.answer + server.n_answer, bytes, n);
    server.n_answer += n;
    say("\r\n");
}

static uint64_t now_ns(void)
{
    return server.now ? server.now(NULL) : 0;
}

static uint64_t number_in(struct text text)
{
    uint64_t number = 0;
    for (size_t i = 0; i < text.n; i++) {
        require(text.at[i] >= '0' && text.at[i] <= '9');
        number = number * 10 + (uint64_t)(text.at[i] - '0');
    }
    return number;
}

static uint64_t expiry_in(struct text ttl_ms)
{
    return now_ns() + number_in(ttl_ms) * 1000000;
}

static void say_field(const struct value *value, int field)
{
    const uint8_t *at = value->bytes;
    for (int i = 0; i < field; i++)
        at += value->n_field[i];
    say_bulk(at, value->n_field[field]);
}

static void say_fields(const struct value *value)
{
    say("*%d\r\n", FIELDS);
    for (int i = 0; i < FIELDS; i++)
        if (value)
            say_field(value, i);
        else
            say("$-1\r\n");
}

static void say_info(void)
{
    char text[300];
    const int n =
        snprintf(text, sizeof text,
                 "# Server\r\nredis_version:7.2.4\r\nused_memory_peak:9\r\nused_memory:1000\r\n"
                 "maxmemory_policy:volatile-ttl\r\nmaxmemory:%" PRIu64 "\r\nevicted_keys:3\r\n"
                 "cluster_enabled:%d\r\ndb0:keys=3,expires=3,avg_ttl=0\r\n",
                 server.max_memory, server.is_cluster);
    say_bulk(text, (size_t)n);
}

static void say_map(void)
{
    say("*2\r\n");
    for (int i = 0; i < 2; i++) {
        const char *host = i == 0 ? "127.0.0.1" : server.second_host;
        say("*3\r\n:%d\r\n:%d\r\n*4\r\n$%zu\r\n%s\r\n:%d\r\n$2\r\nid\r\n*0\r\n", i * 8192,
            i * 8192 + 8191, strlen(host), host, i + 1);
    }
}

static int is_there(int value)
{
    return values[value].n_bytes > 0 && !values[value].writer;
}

/* From the value with this number on; the cursor is the next one's. */
static void say_names(uint64_t cursor)
{
    const int first = server.page > 0 && cursor < VALUES ? (int)cursor : 0;
    unsigned n = 0;
    int end = first;
    for (; end < VALUES && (server.page == 0 || n < server.page); end++)
        n += (unsigned)is_there(end);
    say("*2\r\n$%d\r\n%d\r\n*%u\r\n", 1, end < VALUES ? end : 0, n);
    for (int i = first; i < end; i++)
        if (is_there(i))
            say_bulk(values[i].name, values[i].n_name);
}

/* What a server that works would answer. A command that it does not know is the store's mistake. */
static void answer_right(const struct text *args, unsigned n_args)
{
    struct value *value = n_args > 1 ? find(args[1]) : NULL;
    if (is(args[0], "AUTH") || is(args[0], "SELECT") || is(args[0], "MULTI")) {
        say("+OK\r\n");
    } else if (is(args[0], "INFO")) {
        say_info();
    } else if (is(args[0], "CLUSTER")) {
        say_map();
    } else if (is(args[0], "SET") && n_args == 6) {
        struct value *kept = value ? NULL : keep(args[1], &args[2], 1);
        if (kept)
            kept->expires_ns = expiry_in(args[5]);
        say(value ? "$-1\r\n" : "+OK\r\n");
    } else if (is(args[0], "HMGET")) {
        say_fields(value);
    } else if (is(args[0], "HGET") && value) {
        say_field(value, 0);
    } else if (is(args[0], "HGET")) {
        say("$-1\r\n");
    } else if (is(args[0], "MEMORY")) {
        say(":100000\r\n");
    } else if (is(args[0], "GET") || is(args[0], "GETRANGE")) {
        if (value)
            say_bulk(value->bytes,
                     is(args[0], "GET") || value->n_bytes < 256 ? value->n_bytes : 256);
        else
            say(is(args[0], "GET") ? "$-1\r\n" : "$0\r\n\r\n");
    } else if (is(args[0], "SCAN")) {
        say_names(server.page > 0 ? number_in(args[1]) : 0);
    } else {
        require(n_args >= 2 &&
                (is(args[0], "EXISTS") || is(args[0], "UNLINK") || is(args[0], "PEXPIRE")));
        say(":%d\r\n", value != NULL);
        if (value && is(args[0], "UNLINK"))
            value->n_bytes = 0;
        if (value && is(args[0], "PEXPIRE") &&
            (n_args == 3 || expiry_in(args[2]) > value->expires_ns))
            value->expires_ns = expiry_in(args[2]);
    }
}

static void forget_queued(struct conn *conn)
{
    struct value *value = queued_by(conn);
    if (value)
        value->n_bytes = 0;
    conn->in_multi = conn->is_dirty = 0;
}

static void answer_exec(struct conn *conn)
{
    struct value *value = queued_by(conn);
    struct value *old = value ? find((struct text){value->name, value->n_name}) : NULL;
    if (conn->in_multi == 0) {
        say("-ERR EXEC without MULTI\r\n");
    } else if (conn->is_dirty) {
        say("-EXECABORT Transaction discarded because of previous errors.\r\n");
    } else {
        require(conn->in_multi == 3);
        if (old)
            old->n_bytes = 0;
        if (value)
            value->writer = NULL;
        say("*2\r\n:%d\r\n:%d\r\n", old ? 0 : FIELDS, value != NULL);
    }
    forget_queued(conn);
}

/* At once, if a MULTI failed. */
static void answer_hset(struct conn *conn, const struct text *args, unsigned n_args)
{
    require(n_args == 2 + 2 * FIELDS && (conn->in_multi == 1 || server.had_trouble));
    const struct text fields[FIELDS] = {args[3], args[5], args[7]};
    struct value *old = conn->in_multi ? NULL : find(args[1]);
    if (old)
        old->n_bytes = 0;
    struct value *value = keep(args[1], fields, FIELDS);
    if (value && conn->in_multi)
        value->writer = conn;
    if (conn->in_multi)
        say("+QUEUED\r\n");
    else
        say(":%d\r\n", old ? 0 : FIELDS);
    conn->in_multi += conn->in_multi > 0;
}

/* A MULTI holds HSET and PEXPIRE of one name, and nothing else; EXEC does both at once. */
static void answer_in_order(struct conn *conn, const struct text *args, unsigned n_args)
{
    if (is(args[0], "EXEC")) {
        answer_exec(conn);
    } else if (is(args[0], "HSET")) {
        answer_hset(conn, args, n_args);
    } else if (conn->in_multi > 0) {
        struct value *value = queued_by(conn);
        require(conn->in_multi == 2 && is(args[0], "PEXPIRE") && n_args == 3);
        require(!value ||
                (value->n_name == args[1].n && memcmp(value->name, args[1].at, args[1].n) == 0));
        if (value)
            value->expires_ns = expiry_in(args[2]);
        say("+QUEUED\r\n");
        conn->in_multi++;
    } else {
        answer_right(args, n_args);
        conn->in_multi = is(args[0], "MULTI");
    }
}

/* Of a command that is not obeyed. */
static void answer_error(struct conn *conn, struct text command)
{
    if (is(command, "EXEC"))
        forget_queued(conn);
    conn->is_dirty = conn->in_multi > 0;
    conn->in_multi += conn->in_multi > 0;
    say("-BUSY Redis is busy running a script\r\n");
}

static void add_out(struct conn *conn, const void *bytes, size_t n)
{
    if (conn->out_at > 0) {
        memmove(conn->out, conn->out + conn->out_at, conn->n_out - conn->out_at);
        conn->n_out -= conn->out_at;
        conn->out_at = 0;
    }
    if (n > OUT - conn->n_out) {
        conn->is_closed = 1;
        return;
    }
    memcpy(conn->out + conn->n_out, bytes, n);
    conn->n_out += n;
}

/* 1: it comes now. */
static int has_trouble(struct text command)
{
    if (!server.trouble.command || !is(command, server.trouble.command) || --server.trouble.nth > 0)
        return 0;
    server.trouble.command = NULL;
    server.had_trouble = 1;
    return 1;
}

static void answer_in_trouble(struct conn *conn, const struct text *args, unsigned n_args)
{
    if (server.trouble.kind == REDIS_FAILS)
        answer_error(conn, args[0]);
    else
        answer_in_order(conn, args, n_args);
    if (server.trouble.kind == REDIS_IS_SLOW)
        conn->silent_until = now_ns() + UINT64_C(2000000000);
    conn->is_closed = server.trouble.kind == REDIS_IS_LAST;
    for (int i = 0; i < 1 + (server.trouble.kind == REDIS_REPEATS) && !conn->is_closed; i++)
        add_out(conn, server.answer, server.n_answer);
}

/* ------------------------------------------------------------------------------- other answers */

enum bend {
    RIGHT,
    ANY,       /* bytes of the input */
    REPEATED,  /* the same, again and again */
    CHANGED,   /* some bytes of the right answer */
    CUT,       /* then the end */
    FOLLOWED,  /* by bytes of the input */
    ANOTHER,   /* record */
    REFIELDED, /* a record with another field and a right checksum */
    ERROR,
    TWICE,
    SILENT,
    CLOSED,
    IN_PIECES, /* from now on */
    MANY,      /* servers in a map, or names */
    BENDS
};

static void add_any(struct conn *conn, uint32_t times)
{
    char bytes[256];
    const uint32_t n = draw();
    for (uint32_t i = 0; i < n; i++)
        bytes[i] = (char)draw();
    for (uint32_t i = 0; i < times && !conn->is_closed; i++)
        add_out(conn, bytes, n);
}

static void say_another(void)
{
    const struct value *value = &values[draw() % VALUES];
    server.n_answer = 0;
    if (value->n_bytes > 0)
        say_bulk(value->bytes, value->n_bytes);
    else
        say("$-1\r\n");
}

/* The answer is a record: "$4160\r\n" and its bytes. */
static void change_field(void)
{
    char *header = memchr(server.answer, '\n', server.n_answer);
    const uint32_t place = draw() % 62 * 4;
    const uint32_t value = draw2() | draw2() << 16;
    if (server.answer[0] != '$' || !header || server.n_answer < 4096)
        return;
    uint8_t *at = (uint8_t *)header + 1;
    kvpi_put32(at + place, value);
    const uint32_t body = kvpi_get32(at + 196);
    XXH3_state_t state;
    XXH3_64bits_reset(&state);
    XXH3_64bits_update(&state, at, 248);
    XXH3_64bits_update(&state, at + 256, body < 4096 - 256 ? body : 0);
    kvpi_put64(at + 248, XXH3_64bits_digest(&state));
}

static void say_error(void)
{
    static const char *const errors[] = {
        "-MOVED 1 127.0.0.1:2\r\n",
        "-MOVED 16384 h:99999\r\n",
        "-ASK 1 127.0.0.1:2\r\n",
        "-TRYAGAIN Multiple keys request during rehashing of slot\r\n",
        "-CLUSTERDOWN Hash slot not served\r\n",
        "-OOM command not allowed when used memory > 'maxmemory'.\r\n",
        "-NOAUTH Authentication required.\r\n",
        "-WRONGPASS invalid username-password pair or user is disabled.\r\n",
        "-NOPERM this user has no permissions to run the command\r\n",
        "-LOADING Redis is loading the dataset in memory\r\n",
        "-READONLY You can't write against a read only replica.\r\n",
        "-MASTERDOWN Link with MASTER is down\r\n",
        "-WRONGTYPE Operation against a key holding the wrong kind of value\r\n",
        "-ERR unknown command\r\n",
        "-\033[31m\001\377\r\n",
        "-\r\n",
    };
    server.n_answer = 0;
    say("%s", errors[draw() % (sizeof errors / sizeof *errors)]);
}

static void say_many(struct text command)
{
    const unsigned n = draw2() % 600;
    server.n_answer = 0;
    if (is(command, "SCAN"))
        say("*2\r\n$1\r\n0\r\n");
    say("*%u\r\n", n);
    for (unsigned i = 0; i < n; i++)
        if (is(command, "CLUSTER"))
            say("*3\r\n:%u\r\n:%u\r\n*2\r\n$9\r\n127.0.0.1\r\n:%u\r\n", i * 27, i * 27 + 26, i + 1);
        else
            say("$8\r\nkvp1:%03u\r\n", i);
}

static void change_bytes(void)
{
    for (uint32_t n = draw() % 8 + 1; n > 0; n--) {
        const uint32_t place = draw2();
        server.answer[place % server.n_answer] = (char)draw();
    }
}

static void answer(struct conn *conn, const struct text *args, unsigned n_args)
{
    for (int i = 0; i < COMMANDS; i++)
        server.n_asked[i] += (unsigned)is(args[0], commands[i]);
    if (server.said && !is(args[0], "INFO") && !is(args[0], "CLUSTER")) {
        add_out(conn, server.said, strlen(server.said));
        return;
    }
    server.n_answer = 0;
    if (has_trouble(args[0])) {
        answer_in_trouble(conn, args, n_args);
        return;
    }
    const enum bend bend = draw() % BENDS;
    answer_in_order(conn, args, n_args);
    switch (bend) {
    case ANY: add_any(conn, 1); return;
    case REPEATED: add_any(conn, draw2()); return;
    case CHANGED: change_bytes(); break;
    case CUT:
        server.n_answer = draw2() % server.n_answer;
        conn->is_closed = 1;
        break;
    case ANOTHER: say_another(); break;
    case REFIELDED: change_field(); break;
    case ERROR: say_error(); break;
    case TWICE: add_out(conn, server.answer, server.n_answer); break;
    case SILENT: conn->is_silent = 1; return;
    case CLOSED: conn->is_closed = 1; return;
    case IN_PIECES: conn->chunk = draw() + 1; break;
    case MANY: say_many(args[0]); break;
    case RIGHT:
    case FOLLOWED:
    case BENDS: break;
    }
    add_out(conn, server.answer, server.n_answer);
    if (bend == FOLLOWED)
        add_any(conn, 1);
}

/* ------------------------------------------------------------------------------------ commands */

/* "X123\r\n"; 0: it has not all come. */
static const char *read_count(const char *at, const char *end, char kind, size_t *out)
{
    const char *stop = memchr(at, '\n', (size_t)(end - at));
    if (!stop)
        return NULL;
    require(*at == kind && stop - at >= 3 && stop - at < 12 && stop[-1] == '\r');
    *out = 0;
    for (at++; at < stop - 1; at++) {
        require(*at >= '0' && *at <= '9');
        *out = *out * 10 + (size_t)(*at - '0');
    }
    return stop + 1;
}

/* Bytes of the first command; 0: it has not all come. */
static size_t read_command(const struct conn *conn, struct text *out_args, unsigned *out_n)
{
    const char *const end = conn->in + conn->n_in;
    size_t n_args;
    const char *at = conn->n_in > 0 ? read_count(conn->in, end, '*', &n_args) : NULL;
    if (!at)
        return 0;
    require(n_args >= 1 && n_args <= ARGS);
    for (size_t i = 0; i < n_args; i++) {
        size_t n;
        at = at < end ? read_count(at, end, '$', &n) : NULL;
        if (!at || (size_t)(end - at) < n + 2)
            return 0;
        out_args[i] = (struct text){at, n};
        require(at[n] == '\r' && at[n + 1] == '\n');
        at += n + 2;
    }
    *out_n = (unsigned)n_args;
    return (size_t)(at - conn->in);
}

static void take_commands(struct conn *conn)
{
    struct text args[ARGS];
    unsigned n_args;
    size_t n;
    while ((n = read_command(conn, args, &n_args)) > 0) {
        if (!conn->is_closed && !conn->is_silent && ++server.n_commands <= COMMANDS_MAX)
            answer(conn, args, n_args);
        conn->n_in -= n;
        memmove(conn->in, conn->in + n, conn->n_in);
    }
    conn->is_closed |= server.n_commands > COMMANDS_MAX;
}

/* --------------------------------------------------------------------------------- the sockets */

static struct conn *conn_of(int fd)
{
    for (int i = 0; i < CONNS; i++)
        if (server.conns[i].fd == fd && server.conns[i].is_open)
            return &server.conns[i];
    require(0);
    return NULL;
}

static int start(void *context, void *(*run)(void *), void *argument)
{
    (void)context;
    (void)run(argument);
    return 0;
}

static uint32_t look_up(void *context, const char *host, int port,
                        struct kvpi_net_address out_addresses[KVPI_NET_ADDRESSES], char *out_why,
                        size_t why_bytes)
{
    (void)context;
    require(host[0] && port >= 1 && port <= 65535);
    out_addresses[0].n_bytes = 0;
    if (host[0] >= '0' && host[0] <= '9')
        return 1;
    snprintf(out_why, why_bytes, "no such host");
    return 0;
}

static int open_conn(void *context, const struct kvpi_net_address *address)
{
    (void)context;
    (void)address;
    const int refuses = draw() == 255;
    for (int i = 0; i < CONNS && !refuses; i++) {
        struct conn *conn = &server.conns[i];
        if (conn->is_open)
            continue;
        conn->is_open = 1;
        conn->is_closed = conn->is_silent = conn->n_starved = 0;
        conn->chunk = SIZE_MAX;
        conn->n_in = conn->n_out = conn->out_at = 0;
        conn->in_multi = conn->is_dirty = 0;
        conn->silent_until = 0;
        return conn->fd;
    }
    errno = ECONNREFUSED;
    return -1;
}

static int connected(void *context, int fd)
{
    (void)context;
    (void)conn_of(fd);
    return 0;
}

static ssize_t read_conn(void *context, int fd, void *out_bytes, size_t n_bytes)
{
    (void)context;
    struct conn *conn = conn_of(fd);
    size_t n = now_ns() < conn->silent_until ? 0 : conn->n_out - conn->out_at;
    n = n < n_bytes ? n : n_bytes;
    n = n < conn->chunk ? n : conn->chunk;
    memcpy(out_bytes, conn->out + conn->out_at, n);
    conn->out_at += n;
    server.n_sent += n;
    conn->n_starved = n > 0 ? 0 : conn->n_starved + 1;
    if (n > 0 || conn->is_closed || (!server.is_patient && conn->n_starved > STARVED_MAX))
        return (ssize_t)n;
    errno = EAGAIN;
    return -1;
}

static ssize_t write_conn(void *context, int fd, struct iovec *pieces, size_t n_pieces)
{
    (void)context;
    struct conn *conn = conn_of(fd);
    size_t left = conn->chunk;
    size_t n_all = 0;
    for (size_t i = 0; i < n_pieces && left > 0; i++) {
        const size_t n = pieces[i].iov_len < left ? pieces[i].iov_len : left;
        require(n <= IN - conn->n_in);
        memcpy(conn->in + conn->n_in, pieces[i].iov_base, n);
        conn->n_in += n;
        n_all += n;
        left -= n;
    }
    conn->n_starved = 0;
    take_commands(conn);
    return (ssize_t)n_all;
}

static void close_conn(void *context, int fd)
{
    (void)context;
    struct conn *conn = conn_of(fd);
    forget_queued(conn);
    conn->is_open = 0;
}

const struct kvpi_net redis_server_net = {
    .start = start,
    .look_up = look_up,
    .connect = open_conn,
    .connected = connected,
    .read = read_conn,
    .write = write_conn,
    .close = close_conn,
};
