/* conn: everything a server says is suspect. A reply of a kind that its job does not expect, one
 * that is too long, one that was not asked for: the connection is closed, and so is its memory of
 * what was in the middle. */
#define _GNU_SOURCE
#include "store/redis/link/conn.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <valkey/valkey.h>

#include "store/redis/form.h"

enum { READ_BYTES = 64 * 1024, IOV = KVPI_CONN_OUT };

/* Arrays in each other: of a map's ranges, servers and their metadata; of a cursor and names; of a
 * large record's fields, or of what a MULTI did. */
enum { MAP_DEPTH = 4, LIST_DEPTH = 2, RECORD_DEPTH = 1 };

/* -------------------------------------------------------------------------------------- failing */

static struct kvpi_job *first_job(struct kvpi_conn *conn)
{
    return &conn->jobs[conn->first_job];
}

static void pop_job(struct kvpi_conn *conn)
{
    conn->first_job = (conn->first_job + 1) % KVPI_CONN_JOBS;
    conn->n_jobs--;
}

void kvpi_conn_close(struct kvpi_conn *conn)
{
    while (conn->n_jobs > 0) {
        const struct kvpi_job job = *first_job(conn);
        pop_job(conn);
        if (job.kind == KVPI_JOB_MAP)
            conn->config->map->state = KVPI_MAP_FAILED;
        if (job.kind == KVPI_JOB_QUIET)
            (*conn->config->n_lost)++;
        if (job.part) {
            job.part->end = KVPI_PART_FAILED;
            kvpi_part_list_add(conn->done, job.part);
        }
    }
    kvpi_tls_stop(conn->stream);
    conn->stream = NULL;
    if (conn->reader) {
        valkeyReaderFree(conn->reader);
        conn->config->net->close(conn->config->net->context, conn->fd);
    }
    conn->reader = NULL;
    free(conn->text);
    conn->text = NULL;
    conn->n_text = conn->text_room = conn->text_sent = 0;
    conn->no_memory = 0;
    conn->state = KVPI_CONN_CLOSED;
    conn->n_out = conn->out_at = 0;
    conn->out_sent = 0;
    conn->is_held = 0;
    conn->n_unread = 0;
}

static void fail(struct kvpi_conn *conn, const char *why)
{
    if (conn->state == KVPI_CONN_OPENING && conn->reader && !conn->refused)
        conn->config->lookup->turn++; /* another address may do */
    snprintf(conn->why, sizeof conn->why, "%s", why);
    kvpi_conn_close(conn);
}

/* -------------------------------------------------------------------------------------- replies */

/* What a server says is shown to operators: bytes that are no text are "?". */
static void copy_words(char *out_text, size_t capacity, const char *words, size_t n_bytes)
{
    const size_t n = n_bytes < capacity ? n_bytes : capacity - 1;
    for (size_t i = 0; i < n; i++)
        out_text[i] = (char)(words[i] >= ' ' && words[i] < 127 ? words[i] : '?');
    out_text[n] = 0;
}

/* Its place; 1: a piece of a map. */
static int is_piece(const valkeyReadTask *task, struct kvpi_map_at *out_at)
{
    struct kvpi_conn *conn = task->privdata;
    *out_at = (struct kvpi_map_at){0, task->idx, task->parent ? task->parent->idx : -1};
    for (const valkeyReadTask *up = task->parent; up; up = up->parent)
        out_at->depth++;
    return first_job(conn)->kind == KVPI_JOB_MAP && out_at->depth > 0;
}

/* 1: it was a piece of what a LIST gave. */
static int tell_piece(struct kvpi_conn *conn, int type, const struct kvpi_map_at *at,
                      const char *text, size_t n_bytes)
{
    const struct kvpi_job *job = first_job(conn);
    if (job->kind != KVPI_JOB_LIST)
        return 0;
    if (at->depth == 0)
        conn->reply.type = type;
    conn->config->piece(conn->config->piece_context, at, job->at, text, n_bytes);
    return 1;
}

/* In the array of a record: a field of a READ, an error of a WRITE. 0: it is of a wrong kind. */
static int take_part(struct kvpi_conn *conn, int type, int place, const char *text, size_t n_bytes)
{
    const struct kvpi_job *job = first_job(conn);
    if (job->kind == KVPI_JOB_READ && type == VALKEY_REPLY_STRING) {
        kvpi_form_take_field(job->part->op, place, text, n_bytes);
        return 1;
    }
    if (job->kind != KVPI_JOB_WRITE || type != VALKEY_REPLY_ERROR)
        return 0;
    copy_words(conn->reply.text, sizeof conn->reply.text, text, n_bytes);
    conn->reply.has_error = 1;
    return 1;
}

static void *on_string(const valkeyReadTask *task, char *text, size_t n_bytes)
{
    struct kvpi_conn *conn = task->privdata;
    const struct kvpi_job *job = first_job(conn);
    struct kvpi_map_at at;
    if (is_piece(task, &at)) {
        kvpi_map_text(conn->config->map, &at, text, n_bytes);
        return &conn->reply;
    }
    if (task->type == VALKEY_REPLY_STRING && tell_piece(conn, task->type, &at, text, n_bytes))
        return &conn->reply;
    if (task->parent)
        return take_part(conn, task->type, at.place, text, n_bytes) ? &conn->reply : NULL;
    conn->reply.type = task->type;
    if (task->type == VALKEY_REPLY_STRING && job->kind == KVPI_JOB_READ && !job->is_large) {
        kvpi_form_take(job->part->op, text, n_bytes);
        return &conn->reply;
    }
    if (task->type == VALKEY_REPLY_STRING && job->kind == KVPI_JOB_INFO) {
        conn->config->info(conn->config->context, text, n_bytes);
        return &conn->reply;
    }
    if (task->type != VALKEY_REPLY_STATUS && task->type != VALKEY_REPLY_ERROR)
        return NULL;
    copy_words(conn->reply.text, sizeof conn->reply.text, text, n_bytes);
    return &conn->reply;
}

static void *on_integer(const valkeyReadTask *task, long long number)
{
    struct kvpi_conn *conn = task->privdata;
    struct kvpi_map_at at;
    if (is_piece(task, &at)) {
        kvpi_map_number(conn->config->map, &at, number);
        return &conn->reply;
    }
    const struct kvpi_job *job = first_job(conn);
    if (at.place == 0 || !task->parent)
        conn->reply.number = number;
    if (task->parent)
        return job->kind == KVPI_JOB_WRITE ? &conn->reply : NULL;
    if (job->kind == KVPI_JOB_LIST && conn->config->number)
        conn->config->number(conn->config->piece_context, number);
    conn->reply.type = VALKEY_REPLY_INTEGER;
    return &conn->reply;
}

static void *on_nil(const valkeyReadTask *task)
{
    struct kvpi_conn *conn = task->privdata;
    struct kvpi_map_at at;
    if (is_piece(task, &at)) {
        kvpi_map_text(conn->config->map, &at, NULL, 0);
        return &conn->reply;
    }
    if (tell_piece(conn, VALKEY_REPLY_NIL, &at, NULL, 0))
        return &conn->reply;
    if (task->parent) {
        const struct kvpi_job *job = first_job(conn);
        conn->reply.n_nil++;
        if (job->kind == KVPI_JOB_READ)
            kvpi_form_take_field(job->part->op, at.place, "", 0);
        return job->kind == KVPI_JOB_READ ? &conn->reply : NULL;
    }
    conn->reply.type = VALKEY_REPLY_NIL;
    return &conn->reply;
}

static int depth_of(const struct kvpi_job *job, size_t n)
{
    switch (job->kind) {
    case KVPI_JOB_MAP: return MAP_DEPTH;
    case KVPI_JOB_LIST: return job->type == VALKEY_REPLY_ARRAY ? LIST_DEPTH : 0;
    case KVPI_JOB_READ: return job->is_large && n == KVPI_FORM_FIELDS ? RECORD_DEPTH : 0;
    case KVPI_JOB_WRITE: return job->is_large && n == KVPI_FORM_TOLD ? RECORD_DEPTH : 0;
    default: return 0;
    }
}

/* Of all that is asked for, only maps, lists and large records are arrays, and only so deep. */
static void *on_array(const valkeyReadTask *task, size_t n)
{
    struct kvpi_conn *conn = task->privdata;
    struct kvpi_map_at at;
    (void)is_piece(task, &at);
    if (at.depth >= depth_of(first_job(conn), n))
        return NULL;
    if (at.depth == 0) {
        conn->reply.type = task->type;
        conn->reply.n_nil = 0;
        conn->reply.has_error = 0;
    }
    return &conn->reply;
}

static void *on_double(const valkeyReadTask *task, double number, char *text, size_t n_bytes)
{
    (void)task;
    (void)number;
    (void)text;
    (void)n_bytes;
    return NULL;
}

static void *on_bool(const valkeyReadTask *task, int value)
{
    (void)task;
    (void)value;
    return NULL;
}

static void free_nothing(void *reply)
{
    (void)reply;
}

static valkeyReplyObjectFunctions functions = {
    .createString = on_string,
    .createArray = on_array,
    .createInteger = on_integer,
    .createDouble = on_double,
    .createNil = on_nil,
    .createBool = on_bool,
    .freeObject = free_nothing,
};

/* Whether the server's error begins with this word. */
static int is_error(const struct kvpi_conn *conn, const char *word)
{
    const size_t n = strlen(word);
    return strncmp(conn->reply.text, word, n) == 0 &&
           (conn->reply.text[n] == ' ' || conn->reply.text[n] == 0);
}

/* An error that is the server's answer to a part; the connection is as good as before. A slot that
 * is being moved is a miss: to ask both servers would be two round trips. */
static void note_error(struct kvpi_conn *conn, const struct kvpi_job *job)
{
    struct kvpi_part *part = job->part;
    const uint32_t key = job->kind == KVPI_JOB_COUNT ? job->at : 0;
    if (is_error(conn, "MOVED")) {
        part->keys[part->n_moved++] = part->keys[key];
    } else if (is_error(conn, "ASK") || is_error(conn, "TRYAGAIN") ||
               is_error(conn, "CLUSTERDOWN")) {
        if (part->end == KVPI_PART_ANSWERED)
            part->end = KVPI_PART_MISSED;
    } else if (part->op->kind == KVP_STORE_PUT && is_error(conn, "OOM")) {
        part->op->outcome = KVP_STORE_NO_ROOM;
    } else {
        part->end = KVPI_PART_FAILED;
        memcpy(conn->why, conn->reply.text, sizeof conn->why);
    }
}

static const char *right_of(const struct kvpi_job *job)
{
    static const char *const large_rights[KVPI_FORM_COMMANDS] = {"+multi", "+hset", "+pexpire",
                                                                 "+exec"};
    switch (job->kind) {
    case KVPI_JOB_INFO: return "+info";
    case KVPI_JOB_MAP: return "+cluster|slots";
    case KVPI_JOB_READ: return job->is_large ? "+hmget" : "+get";
    case KVPI_JOB_ASK: return "+exists";
    case KVPI_JOB_WRITE: return job->is_large ? large_rights[job->at % KVPI_FORM_COMMANDS] : "+set";
    case KVPI_JOB_COUNT: return job->part->op->kind == KVP_STORE_HAVE ? "+exists" : "+unlink";
    case KVPI_JOB_QUIET: return job->right;
    case KVPI_JOB_LOGIN:
    case KVPI_JOB_LIST: break;
    }
    return NULL;
}

static void note_denied(const struct kvpi_conn *conn, const struct kvpi_job *job)
{
    const char *right = is_error(conn, "NOPERM") ? right_of(job) : NULL;
    if (right && conn->config->denied)
        conn->config->denied(conn->config->context, right);
}

static void note_count(const struct kvpi_job *job, long long number)
{
    const uint32_t key = job->part->keys[job->at];
    if (job->part->op->kind == KVP_STORE_HAVE && number > 0)
        job->part->op->bits[key / 64] |= UINT64_C(1) << (key % 64);
}

static struct kvpi_job *next_job(struct kvpi_conn *conn)
{
    return &conn->jobs[(conn->first_job + 1) % KVPI_CONN_JOBS];
}

/* The record that waits for this answer is sent, or its WRITE has nothing more to do. An account
 * that may not ask sends it. */
static void end_ask(struct kvpi_conn *conn)
{
    struct kvpi_job *write = next_job(conn);
    conn->is_held = 0;
    if (conn->reply.type == VALKEY_REPLY_INTEGER && conn->reply.number > 0)
        write->part->op->outcome = KVP_STORE_KNOWN;
    else if (conn->reply.type == VALKEY_REPLY_ERROR && !is_error(conn, "NOPERM"))
        note_error(conn, write);
    else
        return;
    conn->n_out = 0;
    write->n_replies = 0;
}

/* An EXEC that is refused tells why behind its own words. */
static void unwrap_error(struct kvpi_conn *conn)
{
    static const char words[] = "because of: ";
    const char *why = is_error(conn, "EXECABORT") ? strstr(conn->reply.text, words) : NULL;
    if (why)
        memmove(conn->reply.text, why + strlen(words), strlen(why + strlen(words)) + 1);
}

static void take_error(struct kvpi_conn *conn, struct kvpi_job *job)
{
    unwrap_error(conn);
    note_denied(conn, job);
    if (job->kind == KVPI_JOB_MAP)
        conn->config->map->state =
            is_error(conn, "NOPERM") || is_error(conn, "ERR") ? KVPI_MAP_DENIED : KVPI_MAP_FAILED;
    if (job->kind == KVPI_JOB_LIST) {
        memcpy(conn->why, conn->reply.text, sizeof conn->why);
        conn->n_refused++;
    }
    /* What an account may not do, or the server cannot, is not tried again. */
    if (job->kind == KVPI_JOB_QUIET && !is_error(conn, "NOPERM") && !is_error(conn, "ERR"))
        (*conn->config->n_lost)++;
    if (job->part && !job->has_ended)
        note_error(conn, job);
    job->has_ended = 1;
}

/* Without any field there is no record; without one of them it has another length. */
static int take_read(struct kvpi_conn *conn, const struct kvpi_job *job)
{
    struct kvpi_store_op *op = job->part->op;
    if (!job->is_large) {
        if (conn->reply.type == VALKEY_REPLY_NIL)
            op->outcome = KVP_STORE_ABSENT;
        return conn->reply.type == VALKEY_REPLY_NIL || conn->reply.type == VALKEY_REPLY_STRING;
    }
    if (conn->reply.type == VALKEY_REPLY_ARRAY && conn->reply.n_nil == KVPI_FORM_FIELDS)
        op->outcome = KVP_STORE_ABSENT;
    return conn->reply.type == VALKEY_REPLY_ARRAY;
}

/* Of a large record: OK, QUEUED, QUEUED, and the number of fields that are new. If none is,
 * another client was faster, and its record was replaced by the same. */
static int take_written(struct kvpi_conn *conn, struct kvpi_job *job)
{
    const int type = conn->reply.type;
    struct kvpi_store_op *op = job->part->op;
    if (job->has_ended)
        return 1;
    if (!job->is_large || job->at == 0) {
        if (!job->is_large && type == VALKEY_REPLY_NIL)
            op->outcome = KVP_STORE_KNOWN;
        return (!job->is_large && type == VALKEY_REPLY_NIL) ||
               (type == VALKEY_REPLY_STATUS && strcmp(conn->reply.text, "OK") == 0);
    }
    if (job->at + 1 < KVPI_FORM_COMMANDS)
        return type == VALKEY_REPLY_STATUS && strcmp(conn->reply.text, "QUEUED") == 0;
    if (type == VALKEY_REPLY_ARRAY && conn->reply.has_error)
        take_error(conn, job);
    else if (conn->reply.number == 0)
        op->outcome = KVP_STORE_KNOWN;
    return type == VALKEY_REPLY_ARRAY;
}

/* 0: no reply for such a job. */
static int take_reply(struct kvpi_conn *conn, struct kvpi_job *job)
{
    const int type = conn->reply.type;
    if (job->kind == KVPI_JOB_LOGIN) {
        conn->refused = type == VALKEY_REPLY_ERROR;
        return type == VALKEY_REPLY_STATUS;
    }
    if (job->kind == KVPI_JOB_ASK && (type == VALKEY_REPLY_INTEGER || type == VALKEY_REPLY_ERROR))
        end_ask(conn);
    if (type == VALKEY_REPLY_ERROR) {
        conn->refused = job->kind == KVPI_JOB_INFO && strncmp(conn->reply.text, "NOAUTH", 6) == 0;
        if (!conn->refused)
            take_error(conn, job);
        return !conn->refused;
    }
    switch (job->kind) {
    case KVPI_JOB_READ: return take_read(conn, job);
    case KVPI_JOB_WRITE: return take_written(conn, job);
    case KVPI_JOB_ASK: return type == VALKEY_REPLY_INTEGER;
    case KVPI_JOB_COUNT:
        if (type == VALKEY_REPLY_INTEGER)
            note_count(job, conn->reply.number);
        return type == VALKEY_REPLY_INTEGER;
    case KVPI_JOB_QUIET: return type == VALKEY_REPLY_INTEGER;
    case KVPI_JOB_MAP: kvpi_map_end(conn->config->map); return type == VALKEY_REPLY_ARRAY;
    case KVPI_JOB_LIST:
        return type == job->type || (type == VALKEY_REPLY_NIL && job->type != VALKEY_REPLY_ARRAY);
    case KVPI_JOB_LOGIN:
    case KVPI_JOB_INFO: break;
    }
    return type == VALKEY_REPLY_STRING;
}

static void end_job(struct kvpi_conn *conn)
{
    struct kvpi_part *part = first_job(conn)->part;
    pop_job(conn);
    if (part)
        kvpi_part_list_add(conn->done, part);
}

/* Only MULTI is answered while a record is being sent. */
static int is_early(const struct kvpi_conn *conn, const struct kvpi_job *job)
{
    return job->kind == KVPI_JOB_WRITE && conn->out_at < conn->n_out &&
           !(job->is_large && job->at == 0);
}

/* A reply is whole. 0: the connection is closed. */
static int end_reply(struct kvpi_conn *conn)
{
    struct kvpi_job *job = first_job(conn);
    /* What comes before a record is sent is no answer to it, and the record is in use. */
    if (is_early(conn, job)) {
        fail(conn, conn->reply.type == VALKEY_REPLY_ERROR
                       ? conn->reply.text
                       : "the server answered what it was not asked");
        return 0;
    }
    if (!take_reply(conn, job)) {
        if (!conn->refused)
            snprintf(conn->reply.text, sizeof conn->reply.text,
                     "the server gave another kind of answer than was asked for");
        fail(conn, conn->reply.text);
        return 0;
    }
    job->at++;
    if (--job->n_replies > 0)
        return 1;
    end_job(conn);
    if (conn->n_jobs > 0 && first_job(conn)->n_replies == 0) /* it was asked for in vain */
        end_job(conn);
    if (conn->state == KVPI_CONN_OPENING && conn->n_jobs == 0)
        conn->state = KVPI_CONN_READY;
    return 1;
}

/* 0: the connection is closed. */
static int read_replies(struct kvpi_conn *conn)
{
    valkeyReader *reader = conn->reader;
    while (conn->n_jobs > 0) {
        void *reply = NULL;
        if (valkeyReaderGetReply(reader, &reply) != VALKEY_OK) {
            fail(conn, reader->err == VALKEY_ERR_OOM ? "the server gave an answer of a wrong kind"
                                                     : reader->errstr);
            return 0;
        }
        if (!reply)
            break;
        if (!end_reply(conn))
            return 0;
        conn->n_unread = reader->len - reader->pos;
    }
    const size_t waiting = reader->len - reader->pos;
    if (conn->n_unread > conn->config->limit_bytes || (conn->n_jobs == 0 && waiting > 0)) {
        fail(conn, conn->n_jobs == 0 ? "the server answered what it was not asked"
                                     : "the server's answer is too long");
        return 0;
    }
    return 1;
}

/* ------------------------------------------------------------------------------- send, receive */

static int is_later(void)
{
    return errno == EAGAIN || errno == EINTR;
}

/* Bytes; 0: later, -1: the connection is closed. */
static ssize_t read_some(struct kvpi_conn *conn, char *out_bytes, size_t n_bytes)
{
    const struct kvpi_net *net = conn->config->net;
    char why[KVPI_CONN_WHY];
    ssize_t n;
    if (conn->stream) {
        n = kvpi_tls_read(conn->stream, out_bytes, n_bytes, why, sizeof why);
        conn->refused |= n == KVPI_TLS_REFUSED && conn->state == KVPI_CONN_OPENING;
    } else {
        n = net->read(net->context, conn->fd, out_bytes, n_bytes);
        if (n < 0 && is_later())
            return 0;
        if (n <= 0) {
            snprintf(why, sizeof why, "%s",
                     n < 0 ? strerror(errno) : "the server has closed the connection");
            n = -1;
        }
    }
    if (n < 0)
        fail(conn, why);
    return n;
}

/* 0: the connection is closed. */
static int receive(struct kvpi_conn *conn)
{
    for (;;) {
        valkeyReader *reader = conn->reader;
        const int whole = conn->n_jobs > 0 && first_job(conn)->kind == KVPI_JOB_READ;
        char *buffer;
        size_t capacity;
        if (valkeyReaderGetReadBuf(reader, &buffer, &capacity,
                                   whole && reader->len == 0 ? conn->config->limit_bytes
                                                             : READ_BYTES) != VALKEY_OK) {
            fail(conn, reader->errstr);
            return 0;
        }
        const ssize_t n = read_some(conn, buffer, capacity);
        if (n <= 0)
            return n == 0;
        valkeyReaderCommitRead(reader, (size_t)n);
        conn->n_unread += (size_t)n;
        if (!read_replies(conn))
            return 0;
    }
}

/* Sends the first pieces. Bytes; 0: later; -1: the connection is closed. */
static ssize_t write_some(struct kvpi_conn *conn, struct iovec *pieces, size_t n_pieces)
{
    const struct kvpi_net *net = conn->config->net;
    char why[KVPI_CONN_WHY];
    ssize_t n;
    if (conn->stream) {
        n = kvpi_tls_write(conn->stream, pieces[0].iov_base, pieces[0].iov_len, why, sizeof why);
        conn->refused |= n == KVPI_TLS_REFUSED && conn->state == KVPI_CONN_OPENING;
    } else {
        n = net->write(net->context, conn->fd, pieces, n_pieces);
        if (n < 0 && is_later())
            return 0;
        if (n < 0)
            snprintf(why, sizeof why, "%s", strerror(errno));
    }
    if (n < 0)
        fail(conn, why);
    return n;
}

/* 0: the connection is closed; what is left is sent later. */
static int send_text(struct kvpi_conn *conn)
{
    while (conn->text_sent < conn->n_text) {
        struct iovec piece = {conn->text + conn->text_sent, conn->n_text - conn->text_sent};
        const ssize_t n = write_some(conn, &piece, 1);
        if (n <= 0)
            return n == 0;
        conn->text_sent += (size_t)n;
    }
    conn->n_text = conn->text_sent = 0;
    return 1;
}

/* Send from the spans. 0: the connection is closed. */
static int send_spans(struct kvpi_conn *conn)
{
    while (conn->out_at < conn->n_out) {
        struct iovec pieces[IOV];
        size_t n_pieces = 0;
        size_t skip = conn->out_sent;
        for (uint32_t i = conn->out_at; i < conn->n_out; i++, skip = 0)
            pieces[n_pieces++] =
                (struct iovec){(char *)conn->out[i].bytes + skip, conn->out[i].n_bytes - skip};
        const ssize_t n = write_some(conn, pieces, n_pieces);
        if (n <= 0)
            return n == 0;
        size_t left = (size_t)n + conn->out_sent;
        while (conn->out_at < conn->n_out && left >= conn->out[conn->out_at].n_bytes)
            left -= conn->out[conn->out_at++].n_bytes;
        conn->out_sent = left;
    }
    conn->n_out = conn->out_at = 0;
    return 1;
}

/* 0: the connection is closed. */
static int send_all(struct kvpi_conn *conn)
{
    if (conn->no_memory) {
        fail(conn, "the system gave no memory");
        return 0;
    }
    return send_text(conn) && (conn->n_text > 0 || conn->is_held || send_spans(conn));
}

/* To the next address that does not refuse at once. 0: the connection is closed. */
static int open_socket(struct kvpi_conn *conn)
{
    const struct kvpi_net *net = conn->config->net;
    const struct kvpi_lookup *lookup = conn->config->lookup;
    int fd = -1;
    for (uint32_t i = 0; i < lookup->n_addresses && fd < 0; i++) {
        const uint32_t number = (lookup->turn + i) % lookup->n_addresses;
        fd = net->connect(net->context, &lookup->addresses[number]);
    }
    if (fd < 0) {
        fail(conn, strerror(errno));
        return 0;
    }
    conn->reader = valkeyReaderCreateWithFunctions(&functions);
    if (!conn->reader) {
        net->close(net->context, fd);
        fail(conn, "the system gave no memory");
        return 0;
    }
    conn->fd = fd;
    conn->reader->privdata = conn;
    conn->reader->maxbuf = 0;
    return 1;
}

/* 1: the address is known, and there is a socket; 0: not yet, or closed. */
static int has_socket(struct kvpi_conn *conn)
{
    if (conn->reader)
        return 1;
    const enum kvpi_lookup_state state = kvpi_lookup_step(conn->config->lookup);
    if (state == KVPI_LOOKUP_FOUND)
        return open_socket(conn);
    if (state != KVPI_LOOKUP_RUNNING)
        fail(conn, conn->config->lookup->why);
    return 0;
}

/* 1: connected; 0: not yet, or closed. */
static int is_connected(struct kvpi_conn *conn)
{
    const struct kvpi_net *net = conn->config->net;
    if (!has_socket(conn))
        return 0;
    const int error = net->connected(net->context, conn->fd);
    if (error == EAGAIN)
        return 0;
    if (error != 0) {
        fail(conn, strerror(error));
        return 0;
    }
    if (!conn->config->tls || conn->stream)
        return 1;
    conn->stream = kvpi_tls_start(conn->config->tls, conn->config->place->host, conn->fd);
    if (!conn->stream)
        fail(conn, "the system gave no memory");
    return conn->stream != NULL;
}

uint64_t kvpi_conn_deadline(const struct kvpi_conn *conn)
{
    uint64_t deadline = conn->n_jobs > 0 ? conn->deadline_ns : UINT64_MAX;
    for (uint32_t i = 0; i < conn->n_jobs; i++) {
        const struct kvpi_part *part = conn->jobs[(conn->first_job + i) % KVPI_CONN_JOBS].part;
        if (part && part->op->deadline_ns < deadline)
            deadline = part->op->deadline_ns;
    }
    return deadline;
}

/* An operation that waited long before leaves the server little time: that the time is over says
 * nothing about the server then. */
static void end_late(struct kvpi_conn *conn, uint64_t now)
{
    if (now < kvpi_conn_deadline(conn))
        return;
    conn->timed_out = now + conn->config->timeout_ns / 8 >= conn->deadline_ns;
    fail(conn, conn->state == KVPI_CONN_OPENING && !conn->reader
                   ? "the server's address was not found in time"
               : conn->timed_out ? "the server did not answer in time"
                                 : "an operation's time was over");
}

void kvpi_conn_pump(struct kvpi_conn *conn, uint64_t now)
{
    if (conn->state == KVPI_CONN_CLOSED)
        return;
    if (conn->state == KVPI_CONN_READY || is_connected(conn)) {
        int was_held;
        do {
            was_held = conn->is_held;
            if (!send_all(conn) || !receive(conn))
                return;
        } while (was_held && !conn->is_held);
    }
    end_late(conn, now);
}

int kvpi_conn_watch(const struct kvpi_conn *conn, struct pollfd *out_fd)
{
    if (conn->state == KVPI_CONN_CLOSED)
        return 0;
    if (!conn->reader) {
        *out_fd = (struct pollfd){.fd = kvpi_lookup_fd(conn->config->lookup), .events = POLLIN};
        return 1;
    }
    const int sends = (conn->out_at < conn->n_out && !conn->is_held) || conn->n_text > 0;
    const short events = conn->stream ? kvpi_tls_events(conn->stream, sends)
                         : sends      ? POLLIN | POLLOUT
                                      : POLLIN;
    *out_fd = (struct pollfd){.fd = conn->fd, .events = events};
    return 1;
}

/* ------------------------------------------------------------------------------------- connect */

static void log_in(struct kvpi_conn *conn, uint64_t now)
{
    const struct kvpi_place_of_server *place = conn->config->place;
    const struct kvpi_job login = {.kind = KVPI_JOB_LOGIN, .n_replies = 1};
    if (place->password[0]) {
        const char *const auth[] = {"AUTH", place->user, place->password};
        const char *const old[] = {"AUTH", place->password};
        kvpi_conn_begin(conn, &login, now);
        kvpi_conn_command(conn, place->user[0] ? 3 : 2, place->user[0] ? auth : old);
    }
    if (place->database > 0) {
        char number[16];
        snprintf(number, sizeof number, "%d", place->database);
        const char *const select[] = {"SELECT", number};
        kvpi_conn_begin(conn, &login, now);
        kvpi_conn_command(conn, 2, select);
    }
    const struct kvpi_job info = {.kind = KVPI_JOB_INFO, .n_replies = 1};
    const char *const text[] = {"INFO"};
    kvpi_conn_begin(conn, &info, now);
    kvpi_conn_command(conn, 1, text);
}

void kvpi_conn_open(struct kvpi_conn *conn, uint64_t now)
{
    conn->refused = conn->timed_out = 0;
    conn->why[0] = 0;
    conn->state = KVPI_CONN_OPENING;
    log_in(conn, now);
    kvpi_lookup_begin(conn->config->lookup, conn->config->net, conn->config->place);
    (void)has_socket(conn);
}

int kvpi_conn_has_room(const struct kvpi_conn *conn)
{
    return conn->state == KVPI_CONN_READY && conn->n_out == 0 &&
           conn->n_jobs + KVPI_CONN_AT_ONCE <= KVPI_CONN_JOBS;
}

int kvpi_conn_is_idle(const struct kvpi_conn *conn)
{
    if (!kvpi_conn_has_room(conn))
        return 0;
    for (uint32_t i = 0; i < conn->n_jobs; i++)
        if (conn->jobs[(conn->first_job + i) % KVPI_CONN_JOBS].part)
            return 0;
    return 1;
}

int kvpi_conn_has_record(const struct kvpi_conn *conn)
{
    for (uint32_t i = 0; i < conn->n_jobs; i++) {
        const enum kvpi_job_kind kind = conn->jobs[(conn->first_job + i) % KVPI_CONN_JOBS].kind;
        if (kind == KVPI_JOB_READ || kind == KVPI_JOB_WRITE)
            return 1;
    }
    return 0;
}
