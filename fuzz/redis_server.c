/* redis_server: a command is answered when its last byte is written. Descriptors are of /dev/null,
 * so that poll(2) never waits for one. */
#define _POSIX_C_SOURCE 200809L
#include "redis_server.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "store/identity/bytes.h"

#include "require.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

enum {
    CONNS = 24,
    VALUES = 6,
    NAME = 128,
    VALUE = 16 * 1024,
    IN = 64 * 1024,
    OUT = 320 * 1024, /* more than an answer may have */
    ANSWER = 48 * 1024,
    ARGS = 8,
    COMMANDS = 11,      /* kinds */
    STARVED_MAX = 8,    /* then it closes, if it is not patient */
    COMMANDS_MAX = 600, /* then nobody answers: what asks on and on ends */
};

struct text {
    const char *at;
    size_t n;
};

struct value {
    char name[NAME];
    uint8_t bytes[VALUE];
    size_t n_name;
    size_t n_bytes; /* 0: none */
};

struct conn {
    int fd; /* of /dev/null */
    int is_open;
    int is_closed; /* by the server */
    int is_silent;
    int n_starved; /* times in a row that nothing was there to be read */
    size_t chunk;  /* bytes at once, either way */
    size_t n_in;
    size_t n_out;
    size_t out_at;
    char in[IN];
    char out[OUT];
};

static struct {
    struct redis_input *input;
    int is_cluster;
    int is_patient;
    const char *second_host;
    const char *said; /* instead of all answers */
    unsigned n_asked[COMMANDS];
    unsigned n_commands;
    uint64_t n_sent;
    struct value values[VALUES];
    struct conn conns[CONNS];
    size_t n_answer;
    char answer[ANSWER];
} server;

static const char *const commands[COMMANDS] = {"AUTH",   "SELECT",  "INFO",     "CLUSTER",
                                               "SET",    "GET",     "GETRANGE", "EXISTS",
                                               "UNLINK", "PEXPIRE", "SCAN"};

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
    server.second_host = "127.0.0.1";
    server.said = NULL;
    memset(server.n_asked, 0, sizeof server.n_asked);
    server.n_commands = 0;
    server.n_sent = 0;
    for (int i = 0; i < VALUES; i++)
        server.values[i].n_bytes = 0;
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

static struct value *find(struct text name)
{
    for (int i = 0; i < VALUES; i++) {
        struct value *value = &server.values[i];
        if (value->n_bytes > 0 && value->n_name == name.n &&
            memcmp(value->name, name.at, name.n) == 0)
            return value;
    }
    return NULL;
}

static void keep(struct text name, struct text bytes)
{
    for (int i = 0; i < VALUES; i++) {
        struct value *value = &server.values[i];
        if (value->n_bytes > 0)
            continue;
        require(name.n < NAME && bytes.n <= VALUE);
        memcpy(value->name, name.at, name.n);
        memcpy(value->bytes, bytes.at, bytes.n);
        value->n_name = name.n;
        value->n_bytes = bytes.n;
        return;
    }
}

static void say_info(void)
{
    char text[300];
    const int n = snprintf(text, sizeof text,
                           "# Server\r\nredis_version:7.2.4\r\nused_memory:1000\r\nmaxmemory:2000"
                           "\r\nmaxmemory_policy:volatile-ttl\r\nevicted_keys:3\r\n"
                           "cluster_enabled:%d\r\ndb0:keys=3,expires=3,avg_ttl=0\r\n",
                           server.is_cluster);
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

static void say_names(void)
{
    int n = 0;
    for (int i = 0; i < VALUES; i++)
        n += server.values[i].n_bytes > 0;
    say("*2\r\n$1\r\n0\r\n*%d\r\n", n);
    for (int i = 0; i < VALUES; i++)
        if (server.values[i].n_bytes > 0)
            say_bulk(server.values[i].name, server.values[i].n_name);
}

/* What a server that works would answer. A command that it does not know is the store's mistake. */
static void answer_right(const struct text *args, unsigned n_args)
{
    struct value *value = n_args > 1 ? find(args[1]) : NULL;
    if (is(args[0], "AUTH") || is(args[0], "SELECT")) {
        say("+OK\r\n");
    } else if (is(args[0], "INFO")) {
        say_info();
    } else if (is(args[0], "CLUSTER")) {
        say_map();
    } else if (is(args[0], "SET") && n_args == 6) {
        if (!value)
            keep(args[1], args[2]);
        say(value ? "$-1\r\n" : "+OK\r\n");
    } else if (is(args[0], "GET") || is(args[0], "GETRANGE")) {
        if (value)
            say_bulk(value->bytes,
                     is(args[0], "GET") || value->n_bytes < 256 ? value->n_bytes : 256);
        else
            say(is(args[0], "GET") ? "$-1\r\n" : "$0\r\n\r\n");
    } else if (is(args[0], "SCAN")) {
        say_names();
    } else {
        require(n_args >= 2 &&
                (is(args[0], "EXISTS") || is(args[0], "UNLINK") || is(args[0], "PEXPIRE")));
        say(":%d\r\n", value != NULL);
        if (value && is(args[0], "UNLINK"))
            value->n_bytes = 0;
    }
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
    const struct value *value = &server.values[draw() % VALUES];
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
    const enum bend bend = draw() % BENDS;
    server.n_answer = 0;
    answer_right(args, n_args);
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
    size_t n = conn->n_out - conn->out_at;
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
    conn_of(fd)->is_open = 0;
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
